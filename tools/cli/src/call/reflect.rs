//! Types from whoever is to be called: gRPC reflection, either version of it.

use super::pool;
use super::way::Way;
use prost_reflect::DescriptorPool;
use prost_reflect::prost::Message;
use prost_reflect::prost_types::FileDescriptorProto;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trunkline::{Code, Status};

/// Files taken from one server for one call. A large company's largest closure has a few thousand.
const FILES_MAX: usize = 10_000;
/// Bytes of them; as much as the daemon takes from an application in one descriptor set.
const FILES_BYTES_MAX: usize = 16 << 20;

/// Longest time a server gets to end a stream that has no more questions: a round trip, and no more than anybody
/// notices.
const END_MAX: Duration = Duration::from_millis(500);

/// Why there are no types.
#[derive(Debug, thiserror::Error)]
pub enum ReflectError {
    /// The server does not reflect.
    #[error("no types from the server ({0}); name them: --proto FILE, or --descriptor-set FILE")]
    None(Status),
    /// The stream failed, or the server is not there.
    #[error("cannot ask the server for its types: {0}")]
    Call(#[from] Status),
    /// The server does not know what was asked.
    #[error("reflection: {message} (code {code})")]
    Unknown {
        /// gRPC code.
        code: i32,
        /// The server's words.
        message: String,
    },
    /// What came does not fit together.
    #[error("reflection: the server's descriptors are wrong: {0}")]
    Descriptors(String),
    /// More than anybody needs.
    #[error("reflection: the server sent {0}")]
    TooMuch(&'static str),
    /// Not an answer to what was asked.
    #[error("reflection: the server answered something that was not asked")]
    Confused,
}

/// A conversation with a server about its types.
pub struct Reflection {
    stream: Box<dyn Stream>,
    services: Vec<String>,
    files: BTreeMap<String, File>,
    bytes: usize,
}

struct File {
    encoded: Vec<u8>,
    imports: Vec<String>,
}

/// What may be asked.
enum Ask {
    Services,
    File(String),
    Symbol(String),
}

/// What comes back.
enum Told {
    Services(Vec<String>),
    Files(Vec<Vec<u8>>),
    Error(i32, String),
}

/// One version of the service.
trait Stream {
    fn ask(&mut self, ask: &Ask) -> Result<Told, ReflectError>;
}

impl Reflection {
    /// Begins to ask whoever is at the end of the way.
    ///
    /// # Errors
    /// [`ReflectError::None`] if the server knows neither version.
    pub fn open(way: &Way) -> Result<Self, ReflectError> {
        let mut stream: Box<dyn Stream> = Box::new(v1::open(way)?);
        let mut told = stream.ask(&Ask::Services);
        if matches!(&told, Err(ReflectError::Call(status)) if status.code() == Code::Unimplemented) {
            stream = Box::new(v1alpha::open(way)?);
            told = stream.ask(&Ask::Services);
        }
        let services = match told {
            Ok(Told::Services(services)) => services,
            Ok(_) => return Err(ReflectError::Confused),
            Err(ReflectError::Call(status)) if does_not_reflect(&status, way) => {
                return Err(ReflectError::None(status));
            }
            Err(error) => return Err(error),
        };
        Ok(Self { stream, services, files: BTreeMap::new(), bytes: 0 })
    }

    /// Full names of what the server serves.
    pub fn services(&self) -> &[String] {
        &self.services
    }

    /// Gets the file that defines a symbol, and all it imports.
    ///
    /// # Errors
    /// [`ReflectError::Unknown`] if the server does not know it.
    pub fn get(&mut self, symbol: &str) -> Result<(), ReflectError> {
        let told = self.stream.ask(&Ask::Symbol(symbol.to_owned()))?;
        self.take(told)?;
        let mut tried = BTreeSet::new();
        while let Some(import) = self.missing(&tried) {
            let told = self.stream.ask(&Ask::File(import.clone()))?;
            match (told, well_known(&import)) {
                // Some servers do not hold protobuf's own files.
                (Told::Error(..), Some(file)) => self.add(file)?,
                (told, _) => self.take(told)?,
            }
            tried.insert(import);
        }
        Ok(())
    }

    /// Everything that was got.
    ///
    /// # Errors
    /// [`ReflectError::Descriptors`].
    pub fn into_pool(self) -> Result<DescriptorPool, ReflectError> {
        let set = EncodedFiles { file: self.files.into_values().map(|file| file.encoded).collect() };
        let mut pool = DescriptorPool::new();
        pool::add(&mut pool, &set.encode_to_vec()).map_err(ReflectError::Descriptors)?;
        Ok(pool)
    }

    fn missing(&self, tried: &BTreeSet<String>) -> Option<String> {
        let mut imports = self.files.values().flat_map(|file| &file.imports);
        imports.find(|name| !self.files.contains_key(*name) && !tried.contains(*name)).cloned()
    }

    fn take(&mut self, told: Told) -> Result<(), ReflectError> {
        match told {
            Told::Files(files) => files.into_iter().try_for_each(|file| self.add(file)),
            Told::Error(code, message) => Err(ReflectError::Unknown { code, message }),
            Told::Services(_) => Err(ReflectError::Confused),
        }
    }

    fn add(&mut self, encoded: Vec<u8>) -> Result<(), ReflectError> {
        self.bytes += encoded.len();
        if self.files.len() >= FILES_MAX || self.bytes > FILES_BYTES_MAX {
            return Err(ReflectError::TooMuch("more than 10000 files or 16 MiB of descriptors"));
        }
        let file = FileDescriptorProto::decode(&*encoded).map_err(|_| ReflectError::Confused)?;
        self.files.insert(file.name().to_owned(), File { encoded, imports: file.dependency });
        Ok(())
    }
}

/// Whether a server is there and does not reflect. On this host nobody serves reflection then, unless its daemon ends:
/// to name types would not help.
fn does_not_reflect(status: &Status, way: &Way) -> bool {
    let is_here = way.target.is_empty();
    let nobody_is_there =
        is_here && status.code() == Code::Unavailable && !status.message().contains("is draining");
    status.code() == Code::Unimplemented || nobody_is_there
}

/// `google.protobuf.FileDescriptorSet`, its files still encoded: options this program does not know stay in them.
#[derive(Clone, PartialEq, prost::Message)]
struct EncodedFiles {
    #[prost(bytes = "vec", repeated, tag = "1")]
    file: Vec<Vec<u8>>,
}

fn well_known(name: &str) -> Option<Vec<u8>> {
    DescriptorPool::global().get_file_by_name(name).map(|file| file.encode_to_vec())
}

/// Lets a stream end, for [`END_MAX`]: what takes longer goes on by itself, and ends with the program.
fn await_end(end: impl FnOnce() + Send + 'static) {
    let (ended, has_ended) = std::sync::mpsc::channel::<()>();
    let spawned = std::thread::Builder::new().name("reflection ends".into()).spawn(move || {
        end();
        drop(ended);
    });
    if spawned.is_ok() {
        // Nothing is ever sent: it is disconnected, or late.
        let _ = has_ended.recv_timeout(END_MAX);
    }
}

/// Both versions have the same messages in different packages.
macro_rules! version {
    ($version:ident) => {
        mod $version {
            use super::{Ask, ReflectError, Told, Way};
            use pb::server_reflection_request::MessageRequest;
            use pb::server_reflection_response::MessageResponse;
            use trunkline::{Receiver, Sender, Status, Wait};
            use trunkline_services::proto::grpc::reflection::$version as pb;

            type Halves = (Sender<pb::ServerReflectionRequest>, Receiver<pb::ServerReflectionResponse>);

            pub struct Stream {
                /// Until it is dropped.
                halves: Option<Halves>,
            }

            /// The same metadata as the call's: a server may want to know who asks. The time limit is another: this is
            /// before the call.
            pub fn open(way: &Way) -> Result<Stream, Status> {
                let client = pb::server_reflection_client::ServerReflectionClient::new(way.channel());
                let mut call = client.server_reflection_info();
                for (key, value) in way.metadata.iter() {
                    call = call.with_metadata(key, value)?;
                }
                if let Some(timeout) = way.timeout {
                    call = call.with_timeout(timeout.max(crate::call::attachment::PATIENCE));
                }
                Ok(Stream { halves: Some(call.split()) })
            }

            /// A stream that is only dropped is a cancelled call, which whoever watches the server has to wonder about:
            /// it is ended, if the server does its part soon.
            impl Drop for Stream {
                fn drop(&mut self) {
                    let Some((questions, answers)) = self.halves.take() else { return };
                    super::await_end(move || {
                        drop(questions);
                        let mut answers = answers;
                        let _ = answers.recv().wait();
                    });
                }
            }

            impl super::Stream for Stream {
                fn ask(&mut self, ask: &Ask) -> Result<Told, ReflectError> {
                    let message_request = Some(match ask {
                        Ask::Services => MessageRequest::ListServices("*".to_owned()),
                        Ask::File(name) => MessageRequest::FileByFilename(name.clone()),
                        Ask::Symbol(name) => MessageRequest::FileContainingSymbol(name.clone()),
                    });
                    let request = pb::ServerReflectionRequest { message_request, ..Default::default() };
                    let Some((questions, answers)) = &mut self.halves else {
                        return Err(ReflectError::Confused);
                    };
                    // A stream that is over says why to whoever receives.
                    let _ = questions.send(request).wait();
                    let answer = answers.recv().wait()?;
                    let answer = answer.ok_or_else(|| Status::unavailable("the server ended the stream"))?;
                    match answer.into_inner().message_response {
                        Some(MessageResponse::ListServicesResponse(list)) => {
                            Ok(Told::Services(list.service.into_iter().map(|service| service.name).collect()))
                        }
                        Some(MessageResponse::FileDescriptorResponse(files)) => {
                            Ok(Told::Files(files.file_descriptor_proto))
                        }
                        Some(MessageResponse::ErrorResponse(error)) => {
                            Ok(Told::Error(error.error_code, error.error_message))
                        }
                        _ => Err(ReflectError::Confused),
                    }
                }
            }
        }
    };
}

version!(v1);
version!(v1alpha);

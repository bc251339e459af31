//! The service in both its published versions, which differ by package only.

use super::catalog::{Answer, Catalog, Question, Told};
use crate::host::{Host, Kept};
use crate::slots::Slots;

/// Answers reflection.
pub(crate) struct ReflectionService<H> {
    catalog: Kept<H, Catalog>,
    streams: Slots,
}

impl<H: Host> ReflectionService<H> {
    pub fn new(host: H, streams: Slots) -> Self {
        Self { catalog: Kept::new(host), streams }
    }

    fn answer(&self, question: &Question, told: &mut Told) -> Answer {
        self.catalog.get(Catalog::new).answer(question, told)
    }
}

/// One version: its messages to questions, answers to its messages.
macro_rules! version {
    ($version:ident) => {
        mod $version {
            use super::*;
            use crate::proto::grpc::reflection::$version as pb;
            use pb::server_reflection_request::MessageRequest;
            use pb::server_reflection_response::MessageResponse;
            use trunkline::{Receiver, Sender, Status};

            impl<H: Host> pb::server_reflection_server::ServerReflection for ReflectionService<H> {
                async fn server_reflection_info(
                    &self,
                    mut input: Receiver<pb::ServerReflectionRequest>,
                    mut out: Sender<pb::ServerReflectionResponse>,
                ) -> Result<(), Status> {
                    let slot = self.streams.take(input.caller())?;
                    let mut told = Told::default();
                    slot.run(async {
                        while let Some(request) = input.recv().await? {
                            let request = request.into_inner();
                            let answer = self.answer(&question(&request), &mut told);
                            out.send(response(request, answer)).await?;
                        }
                        Ok(())
                    })
                    .await
                }
            }

            fn question(request: &pb::ServerReflectionRequest) -> Question {
                match &request.message_request {
                    Some(MessageRequest::FileByFilename(name)) => Question::FileByName(name.clone()),
                    Some(MessageRequest::FileContainingSymbol(symbol)) => {
                        Question::FileWithSymbol(symbol.clone())
                    }
                    Some(MessageRequest::FileContainingExtension(asked)) => {
                        Question::FileWithExtension(asked.containing_type.clone(), asked.extension_number)
                    }
                    Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
                        Question::ExtensionNumbers(name.clone())
                    }
                    Some(MessageRequest::ListServices(_)) => Question::Services,
                    _ => Question::Nothing,
                }
            }

            fn response(
                request: pb::ServerReflectionRequest,
                answer: Answer,
            ) -> pb::ServerReflectionResponse {
                let message = match answer {
                    Answer::Files(file_descriptor_proto) => {
                        MessageResponse::FileDescriptorResponse(pb::FileDescriptorResponse {
                            file_descriptor_proto,
                        })
                    }
                    Answer::ExtensionNumbers(base_type_name, extension_number) => {
                        MessageResponse::AllExtensionNumbersResponse(pb::ExtensionNumberResponse {
                            base_type_name,
                            extension_number,
                        })
                    }
                    Answer::Services(names) => {
                        let service = names.into_iter().map(|name| pb::ServiceResponse { name }).collect();
                        MessageResponse::ListServicesResponse(pb::ListServiceResponse { service })
                    }
                    Answer::Error(code, error_message) => {
                        let error_code = i32::from(code.number());
                        MessageResponse::ErrorResponse(pb::ErrorResponse { error_code, error_message })
                    }
                };
                pb::ServerReflectionResponse {
                    valid_host: request.host.clone(),
                    original_request: Some(request),
                    message_response: Some(message),
                }
            }
        }
    };
}

version!(v1);
version!(v1alpha);

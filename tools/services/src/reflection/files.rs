//! One descriptor set, looked up by what its files define.

use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The files of one set. Files are handed out as the bytes they came in: options and fields this program does not know
/// are still there.
///
/// Names are kept in scopes, as they are written, and not in full: a long package name before many short ones would
/// otherwise take many times the memory of the set.
#[derive(Debug, Default)]
pub struct Files {
    files: Vec<File>,
    by_name: HashMap<String, usize>,
    /// What each package defines.
    packages: HashMap<String, Scope>,
    /// How long the names of packages are.
    package_bytes: BTreeSet<usize>,
    /// Extensions by the message they extend, then by number.
    extensions: HashMap<String, BTreeMap<i32, usize>>,
}

/// Something with names inside, and the file that defines it.
#[derive(Debug, Default)]
struct Scope {
    file: usize,
    inside: HashMap<String, Scope>,
}

/// One file.
#[derive(Debug)]
pub struct File {
    /// As others import it.
    pub name: String,
    /// An encoded `FileDescriptorProto`, as it came.
    pub bytes: Vec<u8>,
    imports: Vec<String>,
}

/// `google.protobuf.FileDescriptorSet`, its files still encoded.
#[derive(Clone, PartialEq, prost::Message)]
struct EncodedFiles {
    #[prost(bytes = "vec", repeated, tag = "1")]
    file: Vec<Vec<u8>>,
}

impl Files {
    /// Indexes an encoded `FileDescriptorSet`. What cannot be read is left out: the daemon has accepted the set, and
    /// then there is nothing of that kind.
    pub fn of(descriptor_set: &[u8]) -> Self {
        let mut files = Self::default();
        for bytes in EncodedFiles::decode(descriptor_set).unwrap_or_default().file {
            if let Ok(file) = FileDescriptorProto::decode(&*bytes) {
                files.add(&file, bytes);
            }
        }
        files
    }

    /// The file of this name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The file that defines a full name. Where its package ends is not written in it. It is looked up where a package
    /// of this set would, not at each of its dots: those are of the asker's making.
    pub fn by_symbol(&self, symbol: &str) -> Option<usize> {
        let packages = self.package_bytes.iter().filter_map(|&bytes| symbol.split_at_checked(bytes));
        let splits = packages.filter_map(|(package, rest)| Some((package, rest.strip_prefix('.')?)));
        splits.chain([("", symbol)]).find_map(|(package, name)| self.packages.get(package)?.find(name))
    }

    /// The file that defines an extension.
    pub fn by_extension(&self, extended: &str, number: i32) -> Option<usize> {
        self.extensions.get(extended)?.get(&number).copied()
    }

    /// Numbers of the extensions of a message.
    pub fn extension_numbers(&self, extended: &str) -> impl Iterator<Item = i32> {
        self.extensions.get(extended).into_iter().flat_map(|numbers| numbers.keys().copied())
    }

    /// A file, then all that it imports, each once.
    pub fn with_imports(&self, file: usize) -> Vec<&File> {
        let mut reached = vec![file];
        let mut is_reached = vec![false; self.files.len()];
        is_reached[file] = true;
        let mut next = 0;
        while let Some(&at) = reached.get(next) {
            next += 1;
            for import in self.files[at].imports.iter().filter_map(|name| self.by_name(name)) {
                if !std::mem::replace(&mut is_reached[import], true) {
                    reached.push(import);
                }
            }
        }
        reached.into_iter().map(|at| &self.files[at]).collect()
    }

    fn add(&mut self, file: &FileDescriptorProto, bytes: Vec<u8>) {
        let at = self.files.len();
        let imports = file.dependency.clone();
        self.files.push(File { name: file.name().to_owned(), bytes, imports });
        self.by_name.insert(file.name().to_owned(), at);
        let mut entering = Entering { at, extensions: &mut self.extensions };
        self.package_bytes.insert(file.package().len());
        let package = self.packages.entry(file.package().to_owned()).or_default();
        file.message_type.iter().for_each(|message| entering.message(package, message));
        file.enum_type.iter().for_each(|definition| entering.enumeration(package, definition));
        file.extension.iter().for_each(|field| entering.extension(package, field));
        for service in &file.service {
            let inside = package.define(service.name(), at);
            service.method.iter().for_each(|method| {
                inside.define(method.name(), at);
            });
        }
    }
}

impl Scope {
    fn define(&mut self, name: &str, file: usize) -> &mut Scope {
        let defined = self.inside.entry(name.to_owned()).or_default();
        defined.file = file;
        defined
    }

    fn find(&self, name: &str) -> Option<usize> {
        let found = name.split('.').try_fold(self, |scope, part| scope.inside.get(part))?;
        Some(found.file)
    }
}

/// Enters what one file defines.
struct Entering<'a> {
    at: usize,
    extensions: &'a mut HashMap<String, BTreeMap<i32, usize>>,
}

impl Entering<'_> {
    fn message(&mut self, scope: &mut Scope, message: &DescriptorProto) {
        let at = self.at;
        let inside = scope.define(message.name(), at);
        message.field.iter().for_each(|field| {
            inside.define(field.name(), at);
        });
        message.oneof_decl.iter().for_each(|oneof| {
            inside.define(oneof.name(), at);
        });
        message.nested_type.iter().for_each(|nested| self.message(inside, nested));
        message.enum_type.iter().for_each(|nested| self.enumeration(inside, nested));
        message.extension.iter().for_each(|field| self.extension(inside, field));
    }

    /// Values are siblings of their enum, as in C++: protobuf's own rule.
    fn enumeration(&mut self, scope: &mut Scope, definition: &EnumDescriptorProto) {
        scope.define(definition.name(), self.at);
        definition.value.iter().for_each(|value| {
            scope.define(value.name(), self.at);
        });
    }

    fn extension(&mut self, scope: &mut Scope, field: &FieldDescriptorProto) {
        scope.define(field.name(), self.at);
        let extended = field.extendee().trim_start_matches('.').to_owned();
        self.extensions.entry(extended).or_default().insert(field.number(), self.at);
    }
}

#[cfg(test)]
pub(super) mod tests {
    //! Shows that everything a file defines is found in it, that files come with their imports, and that no bytes
    //! trouble the index.
    use super::*;
    use proptest::prelude::*;
    use prost_types::{
        FileDescriptorSet, MethodDescriptorProto, OneofDescriptorProto, ServiceDescriptorProto,
    };

    fn some(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    /// `a.proto` imports `b.proto`, which imports `c.proto` and (never to be done) `a.proto`.
    pub fn set() -> Vec<u8> {
        let field = |name: &str, number| FieldDescriptorProto {
            name: some(name),
            number: Some(number),
            ..Default::default()
        };
        let value = prost_types::EnumValueDescriptorProto { name: some("RED"), ..Default::default() };
        let color = EnumDescriptorProto { name: some("Color"), value: vec![value], ..Default::default() };
        let inner = DescriptorProto { name: some("Inner"), ..Default::default() };
        let oneof = OneofDescriptorProto { name: some("either"), ..Default::default() };
        let message = DescriptorProto {
            name: some("M"),
            field: vec![field("x", 1)],
            nested_type: vec![inner],
            enum_type: vec![color],
            oneof_decl: vec![oneof],
            ..Default::default()
        };
        let method = MethodDescriptorProto { name: some("Do"), ..Default::default() };
        let service = ServiceDescriptorProto { name: some("S"), method: vec![method], ..Default::default() };
        let a = FileDescriptorProto {
            name: some("a.proto"),
            package: some("a"),
            dependency: vec!["b.proto".into()],
            message_type: vec![message],
            service: vec![service],
            ..Default::default()
        };
        let extension = FieldDescriptorProto { extendee: some(".c.Base"), ..field("more", 100) };
        let b = FileDescriptorProto {
            name: some("b.proto"),
            dependency: vec!["c.proto".into(), "a.proto".into(), "gone.proto".into()],
            extension: vec![extension],
            ..Default::default()
        };
        let base = DescriptorProto { name: some("Base"), ..Default::default() };
        let c = FileDescriptorProto {
            name: some("c.proto"),
            package: some("c"),
            message_type: vec![base],
            ..Default::default()
        };
        FileDescriptorSet { file: vec![a, b, c] }.encode_to_vec()
    }

    #[test]
    fn everything_is_found() {
        let files = Files::of(&set());
        for (symbol, file) in [
            ("a.M", "a.proto"),
            ("a.M.x", "a.proto"),
            ("a.M.either", "a.proto"),
            ("a.M.Inner", "a.proto"),
            ("a.M.Color", "a.proto"),
            ("a.M.RED", "a.proto"),
            ("a.S", "a.proto"),
            ("a.S.Do", "a.proto"),
            ("more", "b.proto"),
            ("c.Base", "c.proto"),
        ] {
            let found = files.by_symbol(symbol).map(|at| files.files[at].name.as_str());
            assert_eq!(found, Some(file), "{symbol}");
        }
        for nothing in ["", "a", "M", ".a.M", "a.M.Color.RED", "a.T"] {
            assert_eq!(files.by_symbol(nothing), None, "{nothing}");
        }
        assert_eq!(files.by_extension("c.Base", 100), files.by_name("b.proto"));
        assert_eq!(files.by_extension("c.Base", 101), None);
        assert_eq!(files.extension_numbers("c.Base").collect::<Vec<_>>(), [100]);
        assert_eq!(files.extension_numbers("a.M").count(), 0);
    }

    /// The name has a package for each of its dots, in theory.
    #[test]
    fn a_name_is_looked_up_where_packages_end() {
        let files = Files::of(&set());
        assert_eq!(files.package_bytes.iter().copied().collect::<Vec<_>>(), [0, 1]);
        for symbol in ["a.".repeat(2 << 20), "é.M".into(), "aé".into(), ".".into(), "a.".into()] {
            assert_eq!(files.by_symbol(&symbol), None);
        }
    }

    #[test]
    fn files_come_with_their_imports() {
        let files = Files::of(&set());
        let names = |name: &str| -> Vec<&str> {
            let all = files.with_imports(files.by_name(name).unwrap());
            all.into_iter().map(|file| file.name.as_str()).collect()
        };
        assert_eq!(names("a.proto"), ["a.proto", "b.proto", "c.proto"]);
        assert_eq!(names("b.proto"), ["b.proto", "c.proto", "a.proto"], "a circle ends");
        assert_eq!(names("c.proto"), ["c.proto"]);
    }

    #[test]
    fn bytes_are_those_that_came() {
        // A field nobody has defined stays in the file.
        let mut file = FileDescriptorProto { name: some("x.proto"), ..Default::default() }.encode_to_vec();
        file.extend([0xfa, 0x3f, 1, 7]);
        let set = EncodedFiles { file: vec![file.clone()] }.encode_to_vec();
        let files = Files::of(&set);
        assert_eq!(files.files[files.by_name("x.proto").unwrap()].bytes, file);
    }

    proptest! {
        #[test]
        fn any_bytes_are_indexed_or_left_out(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..400) {
            let _ = Files::of(&bytes);
            let mut damaged = set();
            let at = at % damaged.len();
            damaged[at] = damaged[at].wrapping_add(bytes.len() as u8 | 1);
            let files = Files::of(&damaged);
            for file in 0..files.files.len() {
                let _ = files.with_imports(file);
            }
        }
    }
}

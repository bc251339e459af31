//! What names mean in the module that is being written.

use super::ident::{Ident, Taken, misleads};
use super::names::{Home, Module, Names, TypeNames, relative};
use super::writer::{Writer, line};
use crate::Options;

/// What the library is called in generated code. A package is included into a module of the user's, whose names are
/// not known here.
const RUNTIME: &str = "__rt";

/// The module that is being written, with everything needed to refer to things from there.
pub(super) struct Scope<'r> {
    pub(super) options: &'r Options,
    pub(super) names: &'r Names,
    module: Module,
    taken: Taken,
    /// What the library's part for generated code is called here.
    runtime: String,
    /// All names in this module are known: it is not included into one of the user's.
    closed: bool,
}

impl<'r> Scope<'r> {
    /// The module `module` of a package or of a message's nested types; `full_name` is the package's or message's.
    pub(super) fn new(options: &'r Options, names: &'r Names, module: Module, full_name: &str) -> Self {
        let mut taken = names.scope(full_name);
        let runtime = taken.take(RUNTIME).escaped();
        Self { options, names, module, taken, runtime, closed: false }
    }

    /// A module within this one that declares nothing by names from the `.proto` file, such as a client's.
    pub(super) fn inner(&self, module: &str) -> Self {
        let mut path = self.module.clone();
        path.push(module.to_owned());
        let mut taken = Taken::default();
        let runtime = taken.take(RUNTIME).escaped();
        Self { options: self.options, names: self.names, module: path, taken, runtime, closed: true }
    }

    /// The path of this module.
    pub(super) fn module(&self) -> &Module {
        &self.module
    }

    /// Takes a name for something this module declares.
    pub(super) fn take(&mut self, name: impl Into<String>) -> Ident {
        self.taken.take(name)
    }

    /// Something of the prelude by its absolute `path`: a type of the user's may hide its name. By its name where none
    /// can.
    pub(super) fn prelude(&self, path: &str) -> String {
        let name = path.rsplit("::").next().unwrap_or(path);
        let hidden = !self.closed || self.taken.holds(name);
        if hidden { path.to_owned() } else { name.to_owned() }
    }

    /// `name` for a type parameter, or the first of `name_`, `name__`, … that hides no type of this module.
    pub(super) fn parameter(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while self.taken.holds(&name) {
            name.push('_');
        }
        name
    }

    /// The type parameter that stands for the memory a message is built in.
    pub(super) fn extent(&self) -> String {
        self.parameter("E")
    }

    /// `Option<inner>`.
    pub(super) fn option(&self, inner: &str) -> String {
        format!("{}<{inner}>", self.prelude("::core::option::Option"))
    }

    /// Something the generated code uses of the library.
    pub(super) fn runtime(&self, name: &str) -> String {
        format!("{}::{name}", self.runtime)
    }

    /// Writes the content of this module.
    pub(super) fn render(&self, w: &mut Writer, body: impl FnOnce(&mut Writer)) {
        w.with_alias(&self.runtime, &self.options.runtime, body);
    }

    /// The struct or enum of a protobuf type.
    pub(super) fn owned(&self, full_name: &str) -> String {
        let names = self.names.of(full_name);
        self.path(names, &names.owned)
    }

    /// The view of a message.
    pub(super) fn view(&self, full_name: &str, lifetime: &str) -> String {
        self.companion(full_name, "View", |names| &names.view, lifetime)
    }

    /// The builder of a message, in the memory of [`Scope::extent`].
    pub(super) fn builder(&self, full_name: &str, lifetime: &str) -> String {
        self.companion(
            full_name,
            "Builder",
            |names| &names.builder,
            &format!("{lifetime}, {}", self.extent()),
        )
    }

    /// A type that comes with a message: by name within the tree, through the trait for an external one, whose
    /// companions may be called anything.
    fn companion(
        &self,
        full_name: &str,
        item: &str,
        name: fn(&TypeNames) -> &String,
        arguments: &str,
    ) -> String {
        let names = self.names.of(full_name);
        match &names.home {
            Home::Path(path) => format!("<{path} as {}>::{item}<{arguments}>", self.runtime("Message")),
            Home::Tree(_) => format!("{}<{arguments}>", self.path(names, name(names))),
        }
    }

    /// Keeps the compiler from warning about generated code that mentions what the `.proto` file deprecates.
    pub(super) fn allow_deprecated(&self, w: &mut Writer) {
        if self.names.has_deprecated() {
            line!(w, "#[allow(deprecated)]");
        }
    }

    /// Keeps clippy from advice about methods whose names are the `.proto` file's.
    pub(super) fn allow_names<'n>(&self, w: &mut Writer, mut names: impl Iterator<Item = &'n Ident>) {
        if names.any(|name| misleads(name.bare())) {
            let lints = ["new_ret_no_self", "should_implement_trait", "wrong_self_convention"];
            line!(w, "#[allow({})]", lints.map(|lint| format!("clippy::{lint}")).join(", "));
        }
    }

    /// Writes the attributes asked for on the type `full_name`.
    pub(super) fn type_attributes(&self, w: &mut Writer, full_name: &str) {
        self.options.type_attributes(full_name).for_each(|attribute| line!(w, "{attribute}"));
    }

    /// Writes the attributes asked for on a field of the message `full_name`.
    pub(super) fn field_attributes(&self, w: &mut Writer, full_name: &str, field: &str) {
        let field = format!("{full_name}.{field}");
        self.options.field_attributes(&field).for_each(|attribute| line!(w, "{attribute}"));
    }

    fn path(&self, names: &TypeNames, name: &str) -> String {
        match &names.home {
            Home::Path(path) => path.clone(),
            Home::Tree(module) => format!("{}{name}", relative(&self.module, module)),
        }
    }
}

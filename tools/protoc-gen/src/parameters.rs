//! The text behind `--trunkline_opt=`.

use trunkline_codegen::Options;

/// What the parameters ask for.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) options: Options,
    /// Name of a file that includes all others.
    pub(crate) include_file: Option<String>,
    pub(crate) language: TargetLanguage,
    /// Of C++: whether messages are classes over linear messages, not protobuf's.
    pub(crate) is_linear: bool,
    /// Of C++: whether clients and services have gRPC C++'s own surface.
    pub(crate) is_grpc: bool,
    /// Whether anything was said that only Rust's code has.
    says_rust: bool,
    says_cpp: bool,
}

/// What is generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TargetLanguage {
    #[default]
    Rust,
    Cpp,
    Python,
}

impl Parameters {
    /// Reads `name[=value],…`.
    ///
    /// # Errors
    /// What is wrong, for the user to read.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut parameters = Self::default();
        for parameter in text.split(',').map(str::trim).filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            parameters.set(name, value).map_err(|reason| format!("parameter {parameter:?}: {reason}"))?;
            parameters.says_rust |= !["lang", "messages", "surface"].contains(&name);
            parameters.says_cpp |= ["messages", "surface"].contains(&name);
        }
        if parameters.language == TargetLanguage::Cpp && parameters.says_rust {
            return Err(format!("parameters {text:?}: lang=cpp has no others but messages and surface"));
        }
        if parameters.language == TargetLanguage::Python && parameters.says_rust {
            return Err(format!("parameters {text:?}: lang=python has no others"));
        }
        if parameters.language != TargetLanguage::Cpp && parameters.says_cpp {
            return Err(format!("parameters {text:?}: messages and surface are parameters of lang=cpp"));
        }
        if parameters.is_grpc && parameters.is_linear {
            return Err(format!("parameters {text:?}: surface=grpc is over protobuf's messages"));
        }
        Ok(parameters)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "extern_path" => {
                let (proto, rust) = value.split_once('=').ok_or("expected .proto.path=::rust::path")?;
                self.options.extern_path(proto, rust).map_err(|error| error.to_string())?;
            }
            "include_file" if value.is_empty() => return Err("expected a file name".to_owned()),
            "include_file" => self.include_file = Some(value.to_owned()),
            "lang" => {
                self.language = match value {
                    "rust" => TargetLanguage::Rust,
                    "cpp" => TargetLanguage::Cpp,
                    "python" => TargetLanguage::Python,
                    _ => return Err("expected rust, cpp or python".to_owned()),
                }
            }
            "messages" => {
                self.is_linear = match value {
                    "protobuf" => false,
                    "linear" => true,
                    _ => return Err("expected protobuf or linear".to_owned()),
                }
            }
            "surface" => {
                self.is_grpc = match value {
                    "trunkline" => false,
                    "grpc" => true,
                    _ => return Err("expected trunkline or grpc".to_owned()),
                }
            }
            "runtime" if value.is_empty() => return Err("expected a path".to_owned()),
            "runtime" => _ = self.options.runtime(value),
            "btree_maps" => _ = self.options.btree_maps(yes(value)?),
            "shared_types" => _ = self.options.shared_types(yes(value)?),
            "client" => _ = self.options.client(yes(value)?),
            "server" => _ = self.options.server(yes(value)?),
            _ => {
                return Err("there is no such parameter; there are lang, messages, surface, extern_path, \
                            include_file, btree_maps, client, server, shared_types and runtime"
                    .to_owned());
            }
        }
        Ok(())
    }
}

/// A parameter without a value says yes.
fn yes(value: &str) -> Result<bool, String> {
    match value {
        "" | "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    //! Shows which parameters are understood, and what is said about the others.
    use super::*;

    #[test]
    fn parameters_are_separated_by_commas() {
        let text = "client=false, btree_maps,include_file=mod.rs,extern_path=.a.b=::b,,runtime=crate::rt";
        let parameters = Parameters::read(text).unwrap();
        assert_eq!(parameters.include_file.as_deref(), Some("mod.rs"));
        assert!(Parameters::read("").unwrap().include_file.is_none());
    }

    #[test]
    fn mistakes_are_named() {
        for wrong in [
            "client=perhaps",
            "extern_path=.a",
            "extern_path=a=::b",
            "include_file",
            "runtime=",
            "colour",
            "lang=c",
            "client=false,lang=cpp",
            "lang=python,client=false",
            "lang=python,messages=linear",
            "messages=xml",
            "messages=linear",
            "surface=grpc",
            "lang=cpp,surface=soap",
            "lang=cpp,messages=linear,surface=grpc",
        ] {
            let error = Parameters::read(wrong).unwrap_err();
            let named = wrong.rsplit(',').next().unwrap();
            assert!(error.contains(named), "{error}");
        }
    }
}

//! Shows what is generated: the whole text for a small package, so that a change of it is seen in review.
//!
//! Run `INSTA_UPDATE=always cargo test -p trunkline-codegen` to accept a change.

use std::collections::BTreeSet;

use trunkline_codegen::{GeneratedFile, Options, generate, module_tree};

fn generated(proto: &str, options: &Options) -> Vec<GeneratedFile> {
    let set = trunkline_schema::compile_proto_source("greeter.proto", proto).unwrap();
    generate(&set, &["greeter.proto".to_owned()], options).unwrap()
}

const MESSAGES: &str = r#"
    syntax = "proto3";
    package greeter.v1;

    // Somebody to greet.
    //
    //     indented [as] it is
    message Person {
      // Given name first.
      string name = 1;
      optional int32 age = 2;
      repeated int64 lucky_numbers = 3;
      repeated string nicknames = 4;
      map<string, Person> relatives = 5;
      oneof reached_by {
        // In national form.
        string phone = 6;
        Address address = 7;
      }
      Person partner = 8;
      Mood mood = 9;
      message Address {
        bytes photo = 1;
      }
    }

    enum Mood {
      MOOD_UNSPECIFIED = 0;
      // Even so.
      MOOD_GLAD = 1 [deprecated = true];
    }
"#;

const SERVICE: &str = r#"
    syntax = "proto3";
    package greeter.v1;
    message Hello {}
    // Greets.
    service Greeter {
      rpc SayHello(Hello) returns (Hello);
      // Many answers.
      rpc Query(Hello) returns (stream Hello) { option deprecated = true; }
      rpc Index(stream Hello) returns (Hello);
      rpc New(stream Hello) returns (stream Hello);
    }
"#;

/// The text without the descriptor set, which repeats the schema in numbers.
fn code(files: &[GeneratedFile]) -> &str {
    files[0].text.split_once("/// Encoded `FileDescriptorSet`").unwrap().0
}

#[test]
fn messages() {
    insta::assert_snapshot!(code(&generated(MESSAGES, &Options::default())));
}

#[test]
fn services() {
    insta::assert_snapshot!(code(&generated(SERVICE, &Options::default())));
}

#[test]
fn stubs_can_be_left_out() {
    let mut options = Options::default();
    options.client(false);
    let text = &generated(SERVICE, &options)[0].text;
    assert!(!text.contains("mod greeter_client") && text.contains("mod greeter_server"));
    let text = &generated(SERVICE, options.client(true).server(false))[0].text;
    assert!(text.contains("mod greeter_client") && !text.contains("mod greeter_server"));
}

#[test]
fn maps_can_be_ordered() {
    let text = &generated(MESSAGES, Options::default().btree_maps(true))[0].text;
    assert!(text.contains("pub relatives: ::std::collections::BTreeMap<::std::string::String, Person>,"));
}

#[test]
fn attributes_are_put_where_they_are_asked_for() {
    let mut options = Options::default();
    options.type_attribute(".greeter.v1.Person.reached_by", "#[derive(Eq)]").unwrap();
    options.type_attribute(".greeter.v1.Mood", "#[repr(transparent)]").unwrap();
    options.field_attribute(".greeter.v1.Person.name", "#[allow(unused)]").unwrap();
    let text = &generated(MESSAGES, &options)[0].text;
    assert!(text.contains("#[derive(Eq)]\n    #[derive(Clone, Debug, PartialEq)]\n    pub enum ReachedBy {"));
    assert!(
        text.contains("#[repr(transparent)]\n#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]")
    );
    assert!(
        text.contains("/// Given name first.\n    #[allow(unused)]\n    pub name: ::std::string::String,")
    );
}

#[test]
fn packages_become_a_tree_of_modules() {
    let file = |package: &str| GeneratedFile {
        package: package.to_owned(),
        module: package.split('.').map(|part| part.replace("type", "r#type")).collect(),
        name: format!("{package}.rs"),
        text: String::new(),
        refers_to: BTreeSet::new(),
        packages: "packages".to_owned(),
    };
    insta::assert_snapshot!(module_tree(&[file("a"), file("a.type.v1"), file("b.c")]));
}

#[test]
fn the_same_input_gives_the_same_text() {
    let options = Options::default();
    assert_eq!(generated(MESSAGES, &options), generated(MESSAGES, &options));
}

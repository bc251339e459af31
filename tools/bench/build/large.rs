//! What generated code would say of HPRPC's LargeData: constants of its types, and the service.

use crate::large_proto::{FILE, MEMBERS, proto};
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use trunkline_schema::Schema;

/// Writes `large.rs` and the descriptor set it names to `out`.
pub fn generate(out: &Path) -> Result<(), Box<dyn Error>> {
    let schema = Schema::from_proto_source(FILE, &proto(&MEMBERS))?;
    let set = out.join("large.bin");
    std::fs::write(&set, schema.descriptor_set())?;
    let mut types = String::new();
    let mut methods = String::new();
    for members in MEMBERS {
        let name = format!("large.v1.LargeData{members}");
        let index = schema.message_named(&name).ok_or("the schema lacks a message it names")?;
        let message = schema.message(index);
        let first_slot = message.fields.first().ok_or("a message without members")?.slot;
        let in_order = |(n, slot): (u32, u32)| slot == first_slot + 4 * n;
        if !(0..).zip(message.fields.iter().map(|field| field.slot)).all(in_order) {
            return Err(format!("the slots of {name} do not lie in a row").into());
        }
        let (fingerprint, block_bytes) = (schema.fingerprint(index), message.layout.block_bytes);
        writeln!(
            types,
            "Type {{ members: {members}, name: {name:?}, fingerprint: {fingerprint:#x}, block_bytes: {block_bytes}, \
             first_slot: {first_slot} }},"
        )?;
        writeln!(
            methods,
            "rt::MethodDescription {{ path: \"/large.v1.Large/SendRcv{members}\", pattern: rt::Pattern::Unary }},"
        )?;
    }
    let arms: String = MEMBERS
        .iter()
        .map(|members| format!("{members} => {{ const $n: usize = {members}; $then }} "))
        .collect();
    // What is done for the message of so many members, of which a type is.
    let sized = format!(
        "macro_rules! sized {{ ($members:expr, $n:ident => $then:expr, $other:expr) => \
         {{ match $members {{ {arms} _ => $other }} }} }}\n"
    );
    let text = format!(
        "const TYPES: &[Type] = &[{types}];\n\
         static SERVICE: rt::ServiceDescription = rt::ServiceDescription {{ name: \"large.v1.Large\", \
         descriptor_set: include_bytes!({set:?}), methods: &[{methods}] }};\n"
    );
    Ok(std::fs::write(out.join("large.rs"), text + &sized)?)
}

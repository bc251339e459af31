//! What a module exports, read and checked before any code of it runs.

use crate::room::borrowed;
use std::mem::size_of;
use trunkline_module_abi::{
    ABI_VERSION, Create, Decide, Destroy, Export, Finish, Head, Import, MAGIC, NAME_BYTES_MAX, SYMBOL, Slice,
    Table,
};
use trunkline_policy::ModuleError;

/// A sound table.
#[derive(Clone, Debug)]
pub(crate) struct Callbacks {
    pub name: String,
    pub version: String,
    pub state_format: u32,
    pub create: Create,
    pub destroy: Destroy,
    pub decide: Decide,
    pub finish: Option<Finish>,
    pub export: Option<Export>,
    pub import: Option<Import>,
}

/// Reads the table a library exports at `at`.
///
/// # Safety
/// `at` is the address of data named [`SYMBOL`] in a library that stays loaded for as long as the callbacks are used.
pub(crate) unsafe fn read(at: *const Table) -> Result<Callbacks, ModuleError> {
    let wrong = |problem: String, advice: &str| ModuleError::of_path(problem, advice);
    if at.is_null() {
        return Err(wrong(format!("{SYMBOL} is null"), "define it with the macro or the header"));
    }
    // SAFETY: whatever is exported under this name has a head in every version of the ABI, says the header.
    let head = unsafe { at.cast::<Head>().read_unaligned() };
    if head.magic != MAGIC {
        return Err(wrong(
            format!("{SYMBOL} is no module's table"),
            "define it with the macro or the header",
        ));
    }
    if head.abi_version != ABI_VERSION {
        let problem =
            format!("it is built for ABI version {}, and this daemon speaks {ABI_VERSION}", head.abi_version);
        return Err(wrong(problem, "rebuild it against this daemon's trunkline_policy.h or helper crate"));
    }
    // Version 1 begins with the whole table of today; members to come are behind it.
    if (head.table_bytes as usize) < size_of::<Table>() {
        let problem = format!("its table has {} bytes, and needs {}", head.table_bytes, size_of::<Table>());
        return Err(wrong(problem, "take the head from the header: TRUNKLINE_POLICY_HEAD"));
    }
    // SAFETY: the table says that it is at least as large as ours, and its first members never move.
    let table = unsafe { at.read_unaligned() };
    // SAFETY: it is a constant of the library, which is loaded.
    let name = unsafe { label("name", &table.name) }?;
    // SAFETY: as above.
    let version = unsafe { label("version", &table.version) }?;
    let (Some(create), Some(destroy), Some(decide)) = (table.create, table.destroy, table.decide) else {
        let problem = "its table lacks create, destroy or decide".to_owned();
        return Err(wrong(problem, "every module has these three"));
    };
    Ok(Callbacks {
        name,
        version,
        state_format: table.state_format,
        create,
        destroy,
        decide,
        finish: table.finish,
        export: table.export_state,
        import: table.import_state,
    })
}

/// A name for people: short, printable.
///
/// # Safety
/// The slice is null or readable.
unsafe fn label(what: &str, slice: &Slice) -> Result<String, ModuleError> {
    let wrong = |problem: &str| ModuleError::of_path(format!("its {what} {problem}"), "");
    if slice.bytes == 0 || slice.bytes > NAME_BYTES_MAX {
        return Err(wrong(&format!("has {} bytes; write 1 to {NAME_BYTES_MAX}", slice.bytes)));
    }
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { borrowed(slice) };
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("is no UTF-8"))?;
    if text.is_empty() || text.contains(|c: char| c.is_control()) {
        return Err(wrong("is no printable text"));
    }
    Ok(text.to_owned())
}

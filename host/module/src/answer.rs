//! What a module says about a call, checked.

use crate::room::{Added, Room};
use trunkline_call::Code;
use trunkline_module_abi::{Answer, VERDICT_DENY, VERDICT_PASS};
use trunkline_policy::ModuleAnswer;

/// The answer, or what is nonsense about it.
pub(crate) fn checked(raw: &Answer, message: &Room, added: Added) -> Result<ModuleAnswer, String> {
    match raw.verdict {
        VERDICT_PASS => Ok(ModuleAnswer { denied: None, token: raw.token, metadata: added.pairs }),
        VERDICT_DENY => {
            let code = u16::try_from(raw.code).ok().filter(|code| (1..=16).contains(code));
            let Some(code) = code.map(Code::from_number) else {
                return Err(format!("it denied a call with status {}, and codes are 1 to 16", raw.code));
            };
            let words = message.said(&raw.message)?.to_owned();
            Ok(ModuleAnswer { denied: Some((code, words)), ..ModuleAnswer::default() })
        }
        other => Err(format!("its verdict is {other}, and verdicts are 0 (pass) and 1 (deny)")),
    }
}

#[cfg(test)]
mod tests {
    //! Shows which answers are believed; any others are faults.
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_answer_is_believed_or_a_fault(
            verdict in 0..4u32,
            code in prop_oneof![0..20u32, any::<u32>()],
            bytes in prop_oneof![0..4u32, 1020..1030u32, any::<u32>()],
        ) {
            let mut room = Room::new();
            let mut message = room.lend();
            message.bytes = bytes;
            let raw = Answer {
                struct_bytes: 56, verdict, code, reserved: 0, token: 5, message,
                context: std::ptr::null_mut(), add_metadata: None,
            };
            let judged = checked(&raw, &room, Added::default());
            let sound = verdict == VERDICT_PASS
                // The room holds zeros, which are control characters.
                || verdict == VERDICT_DENY && (1..=16).contains(&code) && bytes == 0;
            prop_assert_eq!(judged.is_ok(), sound);
        }
    }
}

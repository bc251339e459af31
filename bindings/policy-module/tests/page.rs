//! Shows that the page about policy modules shows code that compiles.

use trunkline_policy_module::{Call, Code, Config, Field, Policy, Verdict, Wants};

struct Tenant {
    closed: String,
    tenant: Field,
}

impl Policy for Tenant {
    const NAME: &'static str = "tenant";
    const VERSION: &'static str = "1";

    fn create(config: &Config<'_>, wants: &mut Wants) -> Result<Self, String> {
        let closed = config.text("closed").ok_or("closed is missing: the tenant nobody may call for")?;
        Ok(Self { closed: closed.to_owned(), tenant: wants.text("request.tenant") })
    }

    fn decide(&mut self, call: &Call<'_>) -> Verdict {
        match call.text(self.tenant) {
            Some(tenant) if tenant == self.closed => Verdict::deny(Code::PermissionDenied, "closed"),
            _ => Verdict::pass(),
        }
    }
}

trunkline_policy_module::export!(Tenant);

#[test]
fn the_page_shows_the_code_above() {
    let page = include_str!("../../../docs/modules.md");
    let code = include_str!("page.rs");
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 1);
    assert!(code.contains(blocks[0]), "not here:\n{}", blocks[0]);
}

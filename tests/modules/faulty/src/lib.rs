//! A module that does wrong on order: its configuration says what, `does = "panic-decide"`.
//!
//! Without an order it passes calls and counts them; the count is its state.

use trunkline_policy_module::{Call, Code, Config, End, Field, Policy, State, Verdict, Wants};

struct Faulty {
    does: String,
    count: u64,
    text: Option<Field>,
}

impl Faulty {
    fn panics_if(&self, does: &str) {
        assert!(self.does != does, "ordered to {does}");
    }

    /// What the caller wrote.
    fn text_of<'a>(&self, call: &Call<'a>) -> &'a str {
        self.text.and_then(|text| call.text(text)).unwrap_or_default()
    }
}

impl Policy for Faulty {
    const NAME: &'static str = "faulty";
    const VERSION: &'static str = "1";

    fn create(config: &Config<'_>, wants: &mut Wants) -> Result<Self, String> {
        let does = config.text("does").unwrap_or_default().to_owned();
        let mut faulty = Self { does, count: 0, text: None };
        faulty.panics_if("panic-create");
        wants.end();
        match faulty.does.as_str() {
            "refuse" => return Err("it was told to refuse".into()),
            "want-nonsense" => _ = wants.text("request."),
            "want-much" => (0..17).for_each(|_| _ = wants.text("request.text")),
            "want-missing" => _ = wants.text("request.no_such_field"),
            "want-optional" => {
                let _ = wants.text("request.no_such_field");
                wants.optional();
            }
            "deny-text" | "add-text" => faulty.text = Some(wants.text("request.text")),
            "want-other-kind" => _ = wants.int("request.text"),
            _ => {}
        }
        Ok(faulty)
    }

    fn decide(&mut self, call: &Call<'_>) -> Verdict {
        self.panics_if("panic-decide");
        self.count += 1;
        match self.does.as_str() {
            "deny" => Verdict::deny(Code::FailedPrecondition, "it was told to deny"),
            "deny-text" => Verdict::deny(Code::Aborted, self.text_of(call)),
            "add-text" => Verdict::pass().with_metadata("text", self.text_of(call)),
            "bad-metadata" => Verdict::pass().with_metadata("Not-Legal", "x"),
            "add-metadata" => Verdict::pass().with_metadata("ask", "from a module"),
            _ => Verdict::pass_with(self.count),
        }
    }

    fn finish(&mut self, _: &End) {
        self.panics_if("panic-finish");
    }

    fn export(&self) -> Vec<u8> {
        self.panics_if("panic-export");
        if self.does == "much-state" { vec![0; (16 << 20) + 1] } else { self.count.to_le_bytes().to_vec() }
    }

    fn import(&mut self, state: State<'_>) -> Result<(), String> {
        self.panics_if("panic-import");
        if self.does == "refuse-state" {
            return Err("it was told to refuse this state".into());
        }
        let count = state.bytes.try_into().map_err(|_| "a count has eight bytes")?;
        self.count = u64::from_le_bytes(count);
        Ok(())
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // `create` panics with a value that is dropped, too: once is enough.
        if !std::thread::panicking() {
            self.panics_if("panic-destroy");
        }
    }
}

trunkline_policy_module::export!(Faulty);

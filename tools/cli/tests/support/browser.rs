//! A headless browser that does what a person does: looks, clicks, presses keys. It is spoken to by the DevTools
//! protocol over two pipes (`--remote-debugging-pipe`), a JSON message each, ended by a zero byte.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// A browser with one page.
pub struct Browser {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    session: Value,
    number: u64,
    _folder: tempfile::TempDir,
}

/// The browser of this machine, if there is one.
pub fn name() -> Option<String> {
    let named = std::env::var("TRUNKLINE_BROWSER").ok();
    let names = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let is_there = |name: &String| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = named.iter().cloned().chain(names).find(is_there);
    assert!(named.is_none() || found == named, "TRUNKLINE_BROWSER names no browser");
    if found.is_none() {
        eprintln!("NOT SHOWN: there is no browser on this machine; TRUNKLINE_BROWSER may name one");
    }
    found
}

impl Browser {
    /// Opens a page, in a window of so many pixels, light or dark.
    pub fn open(name: &str, url: &str, is_dark: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |file: &str| folder.path().join(file).display().to_string();
        let pipes = [at("commands"), at("answers")];
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        let [commands, answers] = &pipes;
        let flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1500";
        let run = format!(
            "exec '{name}' {flags} --remote-debugging-pipe --user-data-dir='{}' 3<'{commands}' 4>'{answers}'",
            at("profile")
        );
        let child = Command::new("sh").args(["-c", &run]).stderr(Stdio::null()).spawn().unwrap();
        let commands = File::options().write(true).open(commands).unwrap();
        let answers = BufReader::new(File::open(answers).unwrap());
        let mut browser = Self { child, commands, answers, session: Value::Null, number: 0, _folder: folder };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.ask("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].clone();
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.ask("Emulation.setEmulatedMedia", json!({ "features": features }));
        browser.ask("Page.navigate", json!({ "url": url }));
        browser
    }

    /// What an expression of JavaScript is worth there.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let answer = self.ask("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        while self.value(expression) != Value::Bool(true) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Clicks into the middle of the first element with this selector.
    pub fn click(&mut self, selector: &str) {
        let at = self.point(selector);
        self.button("mousePressed", &at);
        self.button("mouseReleased", &at);
    }

    /// Moves the pointer to the middle of the first element with this selector, once it stands still, and says where
    /// that is.
    pub fn point(&mut self, selector: &str) -> Value {
        let middle = format!(
            "(() => {{ const one = document.querySelector({selector:?}); one.scrollIntoView({{ block: 'center' }}); \
             const box = one.getBoundingClientRect(); \
             return [box.x + Math.min(box.width, 80) / 2, box.y + box.height / 2] }})()"
        );
        loop {
            let at = self.value(&middle);
            let event = json!({ "type": "mouseMoved", "x": at[0], "y": at[1] });
            self.ask("Input.dispatchMouseEvent", event);
            if self.value(&middle) == at {
                return at;
            }
        }
    }

    /// Presses the button there, or lets go of it: `mousePressed`, `mouseReleased`.
    pub fn button(&mut self, kind: &str, at: &Value) {
        let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
        self.ask("Input.dispatchMouseEvent", event);
    }

    /// Presses a key: `Enter`, `ArrowDown`, or a character.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            key => u32::from(key.to_uppercase().as_bytes()[0]),
        };
        let text = if key == "Enter" {
            "\r"
        } else if key.len() == 1 {
            key
        } else {
            ""
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text });
            self.ask("Input.dispatchKeyEvent", event);
        }
    }

    /// Puts a picture of the page into the folder that `TRUNKLINE_SCREENSHOTS` names, if it does.
    pub fn picture(&mut self, name: &str) {
        let Ok(folder) = std::env::var("TRUNKLINE_SCREENSHOTS") else { return };
        let height = self.value("Math.min(document.body.scrollHeight + 32, 1100)");
        let clip = json!({ "x": 0, "y": 0, "width": 1200, "height": height, "scale": 1 });
        let taken = self.ask("Page.captureScreenshot", json!({ "format": "png", "clip": clip }));
        let picture = BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.answers.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has ended, asked for {method}");
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.number {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

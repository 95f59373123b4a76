//! What a user wants models to run on, in order.

use std::fmt;
use std::str::FromStr;

use holdfast_wire::Backend;
use serde::{Deserialize, Serialize};

/// One thing to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Choice {
    /// This machine's processor, in this process.
    Cpu,
    /// A lane of a browser.
    Lane(Backend),
}

impl Choice {
    /// All of them.
    pub const ALL: [Choice; 4] = [
        Choice::Lane(Backend::Webgpu),
        Choice::Lane(Backend::Webnn),
        Choice::Lane(Backend::Wasm),
        Choice::Cpu,
    ];
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Choice::Cpu => "cpu",
            Choice::Lane(backend) => backend.name(),
        })
    }
}

impl From<Choice> for String {
    fn from(choice: Choice) -> String {
        choice.to_string()
    }
}

impl TryFrom<String> for Choice {
    type Error = String;

    fn try_from(name: String) -> Result<Choice, String> {
        let known = Choice::ALL.into_iter().find(|choice| choice.to_string() == name);
        known.ok_or_else(|| format!("`{name}` is not a device"))
    }
}

/// Choices, the best first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Choices {
    /// Accelerators that were measured to be ones, then the processor, then WebAssembly.
    Auto,
    /// The best that a browser gives: its accelerators, then WebAssembly.
    Browser,
    /// Just these.
    Ordered(Vec<Choice>),
}

impl Choices {
    /// The choices in order, each with whether it only counts if it is an accelerator.
    pub(crate) fn in_order(&self) -> Vec<(Choice, bool)> {
        let accelerators = [Backend::Webgpu, Backend::Webnn].map(|b| (Choice::Lane(b), true));
        let wasm = (Choice::Lane(Backend::Wasm), false);
        match self {
            Choices::Auto => accelerators.into_iter().chain([(Choice::Cpu, false), wasm]).collect(),
            Choices::Browser => accelerators.into_iter().chain([wasm]).collect(),
            Choices::Ordered(choices) => choices.iter().map(|&choice| (choice, false)).collect(),
        }
    }

    /// Whether any of them needs a browser.
    pub fn need_browser(&self) -> bool {
        match self {
            Choices::Auto | Choices::Browser => true,
            Choices::Ordered(choices) => choices.iter().any(|choice| *choice != Choice::Cpu),
        }
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choices::Auto => f.write_str("auto"),
            Choices::Browser => f.write_str("browser"),
            Choices::Ordered(choices) => {
                let names: Vec<String> = choices.iter().map(Choice::to_string).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

impl FromStr for Choices {
    type Err = String;

    fn from_str(text: &str) -> Result<Choices, String> {
        match text {
            "auto" => return Ok(Choices::Auto),
            "browser" => return Ok(Choices::Browser),
            _ => {}
        }
        let mut choices = Vec::new();
        for name in text.split(',') {
            let name = name.trim();
            let choice = Choice::ALL.into_iter().find(|choice| choice.to_string() == name);
            let choice = choice.ok_or_else(|| {
                format!("`{name}` is not a device: use auto, browser, or what you prefer of webgpu, webnn, wasm and cpu in order, with commas")
            })?;
            if choices.contains(&choice) {
                return Err(format!("`{name}` is there twice"));
            }
            choices.push(choice);
        }
        Ok(Choices::Ordered(choices))
    }
}

impl From<Choices> for String {
    fn from(choices: Choices) -> String {
        choices.to_string()
    }
}

impl TryFrom<String> for Choices {
    type Error = String;

    fn try_from(text: String) -> Result<Choices, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, need_browser: bool) {
        let choices: Choices = text.parse().unwrap();
        assert_eq!(choices.to_string(), text);
        assert_eq!(choices.need_browser(), need_browser);
    }

    #[test]
    fn lists_keep_their_order() {
        check("webgpu,webnn,wasm,cpu", true);
        check("cpu,wasm", true);
        check("cpu", false);
        check("auto", true);
        check("browser", true);
    }

    #[test]
    fn what_is_no_device_is_refused() {
        for text in ["", "gpu", "cpu,cpu", "wasm,", "auto,cpu", "CPU"] {
            assert!(text.parse::<Choices>().is_err(), "{text}");
        }
    }
}

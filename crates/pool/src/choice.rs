//! What a user wants models to run on, in order.

use std::fmt;
use std::str::FromStr;

use holdfast_wire::Backend;

/// One thing to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Choices, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choices {
    /// Accelerators that were measured to be ones, then the processor, then WebAssembly.
    Auto,
    /// Just these.
    Ordered(Vec<Choice>),
}

impl Choices {
    /// Whether any of them needs a browser.
    pub fn need_browser(&self) -> bool {
        match self {
            Choices::Auto => true,
            Choices::Ordered(choices) => choices.iter().any(|choice| *choice != Choice::Cpu),
        }
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choices::Auto => f.write_str("auto"),
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
        if text == "auto" {
            return Ok(Choices::Auto);
        }
        let mut choices = Vec::new();
        for name in text.split(',') {
            let name = name.trim();
            let choice = Choice::ALL.into_iter().find(|choice| choice.to_string() == name);
            let choice = choice.ok_or_else(|| {
                format!("`{name}` is not a device: use auto, or webgpu, webnn, wasm and cpu in the order you prefer, separated by commas")
            })?;
            if choices.contains(&choice) {
                return Err(format!("`{name}` is there twice"));
            }
            choices.push(choice);
        }
        Ok(Choices::Ordered(choices))
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
    }

    #[test]
    fn what_is_no_device_is_refused() {
        for text in ["", "gpu", "cpu,cpu", "wasm,", "auto,cpu", "CPU"] {
            assert!(text.parse::<Choices>().is_err(), "{text}");
        }
    }
}

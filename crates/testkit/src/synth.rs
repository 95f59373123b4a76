//! Models and families by name, as `holdfast synth` makes them.

use std::fmt;
use std::str::FromStr;

use crate::architecture::Architecture;
use crate::error::{BuildError, UnknownName};
use crate::families::{self, Member};
use crate::recipe::{Recipe, Size, Style};

/// What can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One model.
    Architecture(Architecture),
    /// Several that have weights in common.
    Family(Family),
}

/// A kind of family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// One frozen trunk, several heads.
    Heads,
    /// One base, several low-rank adapters.
    Adapters,
    /// A decoder with and without a past.
    DecoderTwins,
}

/// The settings of [`synth`].
#[derive(Clone, Debug)]
pub struct Options {
    /// How large the models are.
    pub size: Size,
    /// How they are written down.
    pub style: Style,
    /// What their weights are drawn from.
    pub seed: u64,
    /// How many heads or adapters.
    pub count: usize,
    /// The rank of adapters.
    pub rank: usize,
    /// What adapters are added to.
    pub base: Architecture,
}

impl Default for Options {
    /// Four tiny ones.
    fn default() -> Options {
        Options {
            size: Size::tiny(),
            style: Style::default(),
            seed: 0,
            count: 4,
            rank: 8,
            base: Architecture::Bert,
        }
    }
}

/// Makes the models of a kind. They share the bytes of the weights that they have in common.
///
/// ```
/// use holdfast_testkit::synth::{Options, synth};
/// let members = synth("heads".parse()?, &Options { count: 3, ..Options::default() })?;
/// assert_eq!(members.len(), 3);
/// assert_eq!(members[0].stem, "head-0-sequence-classification");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn synth(kind: Kind, options: &Options) -> Result<Vec<Member>, BuildError> {
    let recipe =
        Recipe { style: options.style.clone(), ..Recipe::new(options.size.clone(), options.seed) };
    match kind {
        Kind::Architecture(architecture) => architecture.build(&recipe),
        Kind::Family(Family::Heads) => families::heads(&recipe, options.count),
        Kind::Family(Family::Adapters) => {
            families::adapters(options.base, &recipe, options.count, options.rank)
        }
        Kind::Family(Family::DecoderTwins) => families::decoder_twins(&recipe),
    }
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 3] = [Family::Heads, Family::Adapters, Family::DecoderTwins];

    /// The name that it is asked for by.
    pub fn name(self) -> &'static str {
        match self {
            Family::Heads => "heads",
            Family::Adapters => "adapters",
            Family::DecoderTwins => "decoder-twins",
        }
    }
}

impl Kind {
    /// Everything that can be made, architectures first.
    pub fn all() -> impl Iterator<Item = Kind> {
        let architectures = Architecture::ALL.into_iter().map(Kind::Architecture);
        architectures.chain(Family::ALL.into_iter().map(Kind::Family))
    }

    /// The name that it is asked for by.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Architecture(architecture) => architecture.name(),
            Kind::Family(family) => family.name(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Kind, UnknownName> {
        Kind::all().find(|kind| kind.name() == name).ok_or_else(|| UnknownName {
            what: "kind of model",
            name: name.to_owned(),
            known: Kind::all().map(Kind::name).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in Kind::all() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "gpt".parse::<Kind>().unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no kind of model `gpt`; choose one of bert, distilbert, t5-encoder, vit, \
             clip, whisper-encoder, llama, heads, adapters, decoder-twins"
        );
    }

    #[test]
    fn refuses_an_empty_family() {
        let options = Options { count: 0, ..Options::default() };
        for family in [Family::Heads, Family::Adapters] {
            let error = synth(Kind::Family(family), &options).unwrap_err();
            assert_eq!(error.to_string(), "count must be at least 1");
        }
    }
}

//! The architectures by name.

use std::fmt;
use std::str::FromStr;

use crate::error::{BuildError, UnknownName};
use crate::families::Member;
use crate::recipe::Recipe;
use crate::{bert, clip, distilbert, llama, t5, vit, whisper};

/// A kind of model that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the architectures")]
pub enum Architecture {
    Bert,
    DistilBert,
    T5Encoder,
    Vit,
    Clip,
    WhisperEncoder,
    Llama,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Architecture; 7] = [
        Architecture::Bert,
        Architecture::DistilBert,
        Architecture::T5Encoder,
        Architecture::Vit,
        Architecture::Clip,
        Architecture::WhisperEncoder,
        Architecture::Llama,
    ];

    /// The name that it is asked for by.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Bert => "bert",
            Architecture::DistilBert => "distilbert",
            Architecture::T5Encoder => "t5-encoder",
            Architecture::Vit => "vit",
            Architecture::Clip => "clip",
            Architecture::WhisperEncoder => "whisper-encoder",
            Architecture::Llama => "llama",
        }
    }

    /// Its files, named as in real repositories: one `model`, and for CLIP also the towers.
    /// LLaMA's takes a past, which may be empty.
    pub fn build(self, recipe: &Recipe) -> Result<Vec<Member>, BuildError> {
        let model = match self {
            Architecture::Bert => bert::bert(recipe)?,
            Architecture::DistilBert => distilbert::distilbert(recipe)?,
            Architecture::T5Encoder => t5::t5_encoder(recipe)?,
            Architecture::Vit => vit::vit(recipe)?,
            Architecture::Clip => {
                return Ok(vec![
                    Member::new("model", clip::clip(recipe)?),
                    Member::new("text_model", clip::clip_text(recipe)?),
                    Member::new("vision_model", clip::clip_vision(recipe)?),
                ]);
            }
            Architecture::WhisperEncoder => whisper::whisper_encoder(recipe)?,
            Architecture::Llama => llama::llama_with_past(recipe)?,
        };
        Ok(vec![Member::new("model", model)])
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Architecture {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Architecture, UnknownName> {
        let found = Architecture::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownName {
            what: "architecture",
            name: name.to_owned(),
            known: Architecture::ALL.map(Architecture::name).to_vec(),
        })
    }
}

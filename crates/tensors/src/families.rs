//! Families of models, told by their names, and which kinds of tensors they have in common.
//!
//! These are hints for people who share tensors by name. They never lead to a tensor being
//! reused: an embedding of one model means nothing to another unless both are the same function.

use std::fmt;

use serde::Serialize;

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[expect(missing_docs, reason = "each variant is the family of its name")]
pub enum Family {
    Bert,
    T5,
    Llama,
    Bart,
    Vit,
    Clip,
    Detr,
    Whisper,
    WhisperText,
    Wav2Vec2,
    Clap,
    Llava,
    Blip,
}

/// A kind of tensor that several families have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is the kind of its name")]
pub enum SharedKind {
    TextEmbedding,
    VisionEmbedding,
    AudioEmbedding,
    VisionTextJoint,
    AudioTextJoint,
}

impl SharedKind {
    /// Every kind.
    pub const ALL: [SharedKind; 5] = {
        use SharedKind::*;
        [TextEmbedding, VisionEmbedding, AudioEmbedding, VisionTextJoint, AudioTextJoint]
    };

    /// The families that have tensors of this kind.
    pub fn families(self) -> &'static [Family] {
        use Family::*;
        match self {
            SharedKind::TextEmbedding => &[Bert, T5, Llama, Bart],
            SharedKind::VisionEmbedding => &[Vit, Clip, Detr],
            SharedKind::AudioEmbedding => &[Whisper, Wav2Vec2, Clap],
            SharedKind::VisionTextJoint => &[Clip, Llava, Blip],
            SharedKind::AudioTextJoint => &[Clap, WhisperText],
        }
    }

    /// Its name, such as `text_embedding`.
    pub fn name(self) -> &'static str {
        match self {
            SharedKind::TextEmbedding => "text_embedding",
            SharedKind::VisionEmbedding => "vision_embedding",
            SharedKind::AudioEmbedding => "audio_embedding",
            SharedKind::VisionTextJoint => "vision_text_joint",
            SharedKind::AudioTextJoint => "audio_text_joint",
        }
    }
}

impl fmt::Display for SharedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Family {
    /// The family that a model's name speaks of: `bert-base-uncased` and `org/distilbert_v2` are
    /// of BERT. The owner in front of a slash does not count, and of several families the first
    /// named one is meant: `clip-vit-base` is of CLIP.
    pub fn of_model(name: &str) -> Option<Family> {
        let name = name.rsplit('/').next()?.to_lowercase();
        let words = || name.split(|c: char| !c.is_ascii_alphanumeric());
        let family = words().find_map(of_word)?;
        let of_text = family == Family::Whisper && words().any(|word| word == "text");
        Some(if of_text { Family::WhisperText } else { family })
    }
}

/// The family of a word in a model's name, whatever size or version is written behind it.
fn of_word(word: &str) -> Option<Family> {
    use Family::*;
    let exact = [("wav2vec2", Wav2Vec2), ("t5", T5), ("mt5", T5), ("byt5", T5), ("umt5", T5)];
    if let Some(&(_, family)) = exact.iter().find(|(name, _)| *name == word) {
        return Some(family);
    }
    let plain = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let endings = [
        ("bert", Bert),
        ("roberta", Bert),
        ("llama", Llama),
        ("bart", Bart),
        ("clip", Clip),
        ("detr", Detr),
        ("whisper", Whisper),
        ("clap", Clap),
        ("llava", Llava),
    ];
    let named = [("vit", Vit), ("deit", Vit), ("blip", Blip), ("instructblip", Blip)];
    let ending = endings.iter().find(|(name, _)| plain.ends_with(name));
    let found = named.iter().find(|(name, _)| *name == plain).or(ending);
    found.map(|&(_, family)| family)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, family: Option<Family>) {
        assert_eq!(Family::of_model(name), family, "{name}");
    }

    #[test]
    fn names_tell_the_family() {
        check("bert-base-uncased", Some(Family::Bert));
        check("sentence-transformers/distilbert-multilingual", Some(Family::Bert));
        check("FacebookAI/roberta-base", Some(Family::Bert));
        check("google/flan-t5-small", Some(Family::T5));
        check("meta-llama/Llama-3.2-1B", Some(Family::Llama));
        check("TinyLlama_v1", Some(Family::Llama));
        check("facebook/bart-large", Some(Family::Bart));
        check("google/vit-base-patch16-224", Some(Family::Vit));
        check("openai/clip-vit-base-patch32", Some(Family::Clip));
        check("facebook/detr-resnet-50", Some(Family::Detr));
        check("openai/whisper-tiny", Some(Family::Whisper));
        check("whisper-text-encoder", Some(Family::WhisperText));
        check("facebook/wav2vec2-base-960h", Some(Family::Wav2Vec2));
        check("laion/clap-htsat-fused", Some(Family::Clap));
        check("llava-hf/llava-1.5-7b-hf", Some(Family::Llava));
        check("Salesforce/blip2-opt-2.7b", Some(Family::Blip));
    }

    #[test]
    fn other_names_tell_none() {
        for name in ["", "resnet-50", "bertha", "invitation", "gpt2", "bert/", "t51", "bert/gpt2"] {
            check(name, None);
        }
    }

    #[test]
    fn the_table_is_that_of_the_guides() {
        let kinds = |family| {
            SharedKind::ALL.into_iter().filter(|kind| kind.families().contains(&family)).count()
        };
        assert_eq!(kinds(Family::Clip), 2);
        assert_eq!(kinds(Family::Clap), 2);
        assert_eq!(kinds(Family::Bert), 1);
        assert_eq!(kinds(Family::Whisper), 1);
        assert_eq!(SharedKind::TextEmbedding.families().len(), 4);
    }
}

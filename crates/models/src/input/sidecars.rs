//! The small files beside a model that say how people's data becomes its tensors.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::InputError;

/// Files that came with a model, by their path in its folder (`1_Pooling/config.json`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sidecars(BTreeMap<String, Bytes>);

/// No sidecar is larger; the largest tokenizers in use are around 35 MB.
const MAX_SIDECAR_BYTES: u64 = 256 << 20;

impl Sidecars {
    /// The files that this module reads, where a model has them. Pooling may be kept in
    /// another folder, which `modules.json` then names.
    pub const NAMES: [&str; 8] = [
        "1_Pooling/config.json",
        "config.json",
        "modules.json",
        "preprocessor_config.json",
        "processor_config.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ];

    /// Reads the [`NAMES`](Sidecars::NAMES) that exist in a model's folder.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Sidecars, InputError> {
        let mut sidecars = Sidecars::default();
        for name in Sidecars::NAMES {
            let path = folder.as_ref().join(name);
            let io = |source| InputError::Io { path: path.clone(), source };
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.len() > MAX_SIDECAR_BYTES => {
                    return Err(InputError::bad_file(name, "it is larger than 256 MB"));
                }
                Ok(metadata) if metadata.is_file() => {
                    sidecars.insert(name, std::fs::read(&path).map_err(io)?);
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(io(error)),
            }
        }
        Ok(sidecars)
    }

    /// Adds or replaces a file.
    pub fn insert(&mut self, name: impl Into<String>, bytes: impl Into<Bytes>) {
        self.0.insert(name.into(), bytes.into());
    }

    /// A file's bytes.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.get(name)
    }

    /// A JSON file, if the model has it.
    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, InputError> {
        let Some(bytes) = self.get(name) else { return Ok(None) };
        serde_json::from_slice(bytes).map(Some).map_err(|error| InputError::bad_file(name, error))
    }

    /// How pictures or sound become tensors, and the file that says so: all of
    /// `preprocessor_config.json`, or the named part of `processor_config.json`, where newer
    /// exports keep it.
    pub(super) fn processor(&self, part: &str) -> Result<Option<(&'static str, Json)>, InputError> {
        if let Some(json) = self.json::<Json>("preprocessor_config.json")? {
            return Ok(Some(("preprocessor_config.json", json)));
        }
        let whole = self.json::<Json>("processor_config.json")?;
        let part = whole.and_then(|mut json| json.get_mut(part).map(Json::take));
        Ok(part.map(|json| ("processor_config.json", json)))
    }
}

impl<N: Into<String>, B: Into<Bytes>> FromIterator<(N, B)> for Sidecars {
    fn from_iter<I: IntoIterator<Item = (N, B)>>(files: I) -> Sidecars {
        Sidecars(files.into_iter().map(|(name, bytes)| (name.into(), bytes.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_json_names_the_file() {
        let sidecars = Sidecars::from_iter([("config.json", "{\"a\": ")]);
        let error = sidecars.json::<Json>("config.json").unwrap_err();
        assert!(error.to_string().starts_with("config.json of this model is not valid: EOF"));
        assert_eq!(sidecars.json::<Json>("modules.json").unwrap(), None);
    }

    #[test]
    fn the_processor_may_be_a_part_of_a_larger_file() {
        let part = Sidecars::from_iter([(
            "processor_config.json",
            r#"{"image_processor": {"size": 8}, "feature_extractor": {"sampling_rate": 8000}}"#,
        )]);
        let (file, json) = part.processor("image_processor").unwrap().unwrap();
        assert_eq!((file, json["size"].as_u64()), ("processor_config.json", Some(8)));
        assert_eq!(part.processor("video_processor").unwrap(), None);
    }
}

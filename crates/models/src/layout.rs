//! What the files of a model's folder are, by their names and content.
//!
//! The names are those that Hugging Face exporters use: `ROLE[_VARIANT].onnx`, in the folder
//! or in its `onnx` sub-folder. A file without a variant in its name is judged by its weights.
//!
//! **Which variant runs**, unless the user names one: the first of fp32, fp16, q8, int8, uint8,
//! q4f16, q4, bnb4 that the model has. It is the order of faithfulness to the original.

use std::fmt;
use std::path::{Path, PathBuf};

use holdfast_graph::{DataType, Model, WeightTable};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// What a component is for: `model`, `encoder`, `decoder`, `decoder_with_past`, `vision` …
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Role(pub String);

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The precision of a component. Ordered: what is preferred comes first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Variant(pub String);

const PREFERENCE: [&str; 8] = ["fp32", "fp16", "q8", "int8", "uint8", "q4f16", "q4", "bnb4"];

impl Variant {
    fn rank(&self) -> usize {
        PREFERENCE.iter().position(|name| *name == self.0).unwrap_or(PREFERENCE.len())
    }
}

impl Ord for Variant {
    fn cmp(&self, other: &Variant) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Variant {
    fn partial_cmp(&self, other: &Variant) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a file's name says. The variant is `None` where it says nothing.
pub fn parse_stem(stem: &str) -> (Role, Option<Variant>) {
    const SUFFIXES: [(&str, &str); 9] = [
        ("_quantized", "q8"),
        ("_q4f16", "q4f16"),
        ("_uint8", "uint8"),
        ("_int8", "int8"),
        ("_bnb4", "bnb4"),
        ("_fp16", "fp16"),
        ("_fp32", "fp32"),
        ("_q8", "q8"),
        ("_q4", "q4"),
    ];
    let found =
        SUFFIXES.iter().find_map(|(suffix, name)| Some((stem.strip_suffix(suffix)?, *name)));
    let (base, variant) = match found {
        Some((base, name)) => (base, Some(Variant(name.to_owned()))),
        None => (stem, None),
    };
    let role = match base {
        "model" => "model",
        "encoder_model" | "encoder" => "encoder",
        "decoder_model" | "decoder" => "decoder",
        "decoder_with_past_model" => "decoder_with_past",
        "decoder_model_merged" => "decoder_merged",
        "vision_model" | "vision_encoder" => "vision",
        "text_model" | "text_encoder" => "text",
        other => other,
    };
    (Role(role.to_owned()), variant)
}

/// The precision that a graph's operators and weights show.
pub(crate) fn variant_of(model: &Model, weights: &WeightTable) -> Variant {
    let operators: Vec<&str> = model.nodes().iter().map(|node| node.op_type.as_str()).collect();
    let uses = |names: &[&str]| operators.iter().any(|operator| names.contains(operator));
    if uses(&["MatMulNBits"]) {
        return Variant("q4".to_owned());
    }
    let quantized = ["MatMulInteger", "ConvInteger", "DynamicQuantizeLinear", "QuantizeLinear"];
    if uses(&quantized) || uses(&["DynamicQuantizeMatMul", "QLinearMatMul", "QLinearConv"]) {
        return Variant("q8".to_owned());
    }
    let bytes_of = |dtype: DataType| -> usize {
        let entries = weights.entries().iter().map(|weight| &weight.tensor);
        entries.filter(|tensor| tensor.dtype() == dtype).map(|tensor| tensor.bytes().len()).sum()
    };
    let half = bytes_of(DataType::F16) > bytes_of(DataType::F32);
    Variant(if half { "fp16" } else { "fp32" }.to_owned())
}

/// An ONNX file that is a component of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComponentFile {
    pub(crate) path: PathBuf,
    /// Relative to the model's folder, with `/`.
    pub(crate) file: String,
    pub(crate) role: Role,
    pub(crate) variant: Option<Variant>,
}

/// The files of a model's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) components: Vec<ComponentFile>,
    /// Side files: path, and path relative to the folder.
    pub(crate) files: Vec<(PathBuf, String)>,
}

/// Side files of a model are small; anything larger is not one of them.
const MAX_SIDE_FILE: u64 = 64 << 20;

impl Layout {
    /// Looks at an `.onnx` file or at a folder.
    pub(crate) fn read(path: &Path) -> Result<Layout, StoreError> {
        let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => StoreError::NothingThere(path.to_owned()),
            _ => StoreError::io("read", path, error),
        })?;
        if metadata.is_dir() { Layout::of_folder(path) } else { Ok(Layout::of_file(path)) }
    }

    fn of_file(path: &Path) -> Layout {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let role = Role("model".to_owned());
        let (_, variant) = parse_stem(&stem);
        let component = ComponentFile { path: path.to_owned(), file, role, variant };
        Layout { components: vec![component], files: Vec::new() }
    }

    fn of_folder(folder: &Path) -> Result<Layout, StoreError> {
        let mut layout = Layout::default();
        for (sub, prefix) in [(folder.join("onnx"), "onnx/"), (folder.to_owned(), "")] {
            for (path, name) in plain_files(&sub)? {
                let file = format!("{prefix}{name}");
                if let Some(stem) = name.strip_suffix(".onnx") {
                    let (role, variant) = parse_stem(stem);
                    layout.components.push(ComponentFile { path, file, role, variant });
                } else if prefix.is_empty() && is_side_file(&path) {
                    layout.files.push((path, file));
                }
            }
        }
        // Sentence embedders keep how to pool in a folder of its own.
        let pooling = folder.join("1_Pooling/config.json");
        if pooling.is_file() {
            layout.files.push((pooling, "1_Pooling/config.json".to_owned()));
        }
        if layout.components.is_empty() {
            return Err(StoreError::NothingToImport(folder.to_owned()));
        }
        if let [only] = layout.components.as_mut_slice() {
            only.role = Role("model".to_owned());
        }
        Ok(layout)
    }
}

/// The plain files of a folder in the order of their names; none if there is no such folder.
fn plain_files(folder: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let io = |error| StoreError::io("list", folder, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.is_file()
            && let Some(name) = path.file_name().and_then(|name| name.to_str())
        {
            files.push((path.clone(), name.to_owned()));
        }
    }
    files.sort();
    Ok(files)
}

fn is_side_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_SIDE_FILE);
    small && matches!(extension, "json" | "txt" | "model" | "tiktoken" | "jinja")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_role_and_variant() {
        let check = |stem: &str, role: &str, variant: Option<&str>| {
            let (found_role, found_variant) = parse_stem(stem);
            assert_eq!(found_role.0, role, "{stem}");
            assert_eq!(found_variant.map(|variant| variant.0).as_deref(), variant, "{stem}");
        };
        check("model", "model", None);
        check("model_quantized", "model", Some("q8"));
        check("model_q4f16", "model", Some("q4f16"));
        check("encoder_model_fp16", "encoder", Some("fp16"));
        check("decoder_model_merged", "decoder_merged", None);
        check("decoder_with_past_model_int8", "decoder_with_past", Some("int8"));
        check("embed_tokens_uint8", "embed_tokens", Some("uint8"));
    }

    #[test]
    fn full_precision_is_preferred_and_unknown_variants_come_last() {
        let mut variants = ["q3", "q4", "fp16", "fp32", "q8"].map(|name| Variant(name.to_owned()));
        variants.sort();
        assert_eq!(variants.map(|variant| variant.0), ["fp32", "fp16", "q8", "q4", "q3"]);
    }
}

//! Inputs made from what a model declares.

use anyhow::{Context, bail};
use holdfast_devices::ModelKind;
use holdfast_graph::{DataType, Dim, Model, Tensor, Value};

/// Sizes for what a model leaves open.
#[derive(Clone, Copy)]
pub(crate) struct Sizes<'a> {
    pub(crate) batch: usize,
    pub(crate) tokens: usize,
    /// Those that the user gave.
    pub(crate) dims: &'a [(String, usize)],
}

/// What one request is fed.
pub(crate) struct Feed {
    pub(crate) tensors: Vec<(String, Tensor)>,
    /// What that is, for people.
    pub(crate) fed: Vec<String>,
    pub(crate) kind: ModelKind,
}

/// Elements that an input may have: more is a size that was not meant.
const MOST_ELEMENTS: usize = 1 << 28;
/// The side of a picture where the model takes any.
const SIDE: usize = 224;
/// Ids stay below this where the model does not tell: the smallest vocabulary in use.
const LEAST_VOCABULARY: usize = 256;

/// Makes an input for each that the model declares.
pub(super) fn feed(model: &Model, role: &str, sizes: &Sizes<'_>) -> anyhow::Result<Feed> {
    feed_round(model, role, sizes, 0)
}

/// The same with other ids and other noise for every round.
pub(crate) fn feed_round(
    model: &Model,
    role: &str,
    sizes: &Sizes<'_>,
    round: u64,
) -> anyhow::Result<Feed> {
    let declared = model.inputs();
    let named = |name: &String| {
        let dims = declared.iter().filter_map(|value| value.dims.as_ref()).flatten();
        dims.into_iter().any(|dim| matches!(dim, Dim::Named(of) if of == name))
    };
    if let Some((name, _)) = sizes.dims.iter().find(|(name, _)| !named(name)) {
        bail!("no input has a dimension `{name}`; `holdfast show` lists them");
    }
    let mut feed = Feed { tensors: Vec::new(), fed: Vec::new(), kind: kind(&declared, role) };
    for value in &declared {
        let context = || format!("no input can be made for `{}`", value.name);
        let dims = sizes.of(value).with_context(context)?;
        let (tensor, what) = make(model, value, &dims, round).with_context(context)?;
        let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
        let (name, dtype) = (&value.name, tensor.dtype());
        feed.fed.push(format!("{name} {dtype}[{}] {what}", dims.join(", ")));
        feed.tensors.push((name.clone(), tensor));
    }
    Ok(feed)
}

impl Sizes<'_> {
    fn of(&self, value: &Value) -> anyhow::Result<Vec<usize>> {
        let Some(dims) = &value.dims else { bail!("the model does not say its shape") };
        let rank = dims.len();
        let size = |(axis, dim): (usize, &Dim)| match dim {
            Dim::Fixed(size) => *size,
            Dim::Named(name) => self.named(name, axis, rank),
            Dim::Unknown => self.usual(axis, rank),
        };
        let dims: Vec<usize> = dims.iter().enumerate().map(size).collect();
        let elements = dims.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
            bail!("{dims:?} is too large; choose its sizes with --dim NAME=SIZE");
        }
        Ok(dims)
    }

    /// What a name tells of a size.
    fn named(&self, name: &str, axis: usize, rank: usize) -> usize {
        if let Some((_, size)) = self.dims.iter().find(|(given, _)| given == name) {
            return *size;
        }
        // As in `past_sequence_length + 1`.
        if name.contains('+') {
            let part = |part: &str| part.parse().unwrap_or_else(|_| self.named(part, axis, rank));
            return name.split('+').map(|text| part(text.trim())).sum();
        }
        let has = |word: &str| name.to_lowercase().contains(word);
        match () {
            () if has("batch") => self.batch,
            // What is past and what is new.
            () if has("total") => 2 * self.tokens,
            () if ["seq", "len", "tok", "past"].into_iter().any(has) => self.tokens,
            () if has("height") || has("width") => SIDE,
            () if has("channel") => 3,
            () => self.usual(axis, rank),
        }
    }

    /// What a place tells of a size: rows come first, pictures have four dimensions.
    fn usual(&self, axis: usize, rank: usize) -> usize {
        match (axis, rank) {
            (0, _) => self.batch,
            (1, 4) => 3,
            (_, 4) => SIDE,
            (1, 2) => self.tokens,
            _ => 1,
        }
    }
}

/// Numbers for an input, and what they are.
fn make(
    model: &Model,
    value: &Value,
    dims: &[usize],
    round: u64,
) -> anyhow::Result<(Tensor, String)> {
    let Some(dtype) = value.dtype else { bail!("the model does not say its type") };
    let name = value.name.to_lowercase();
    let count: usize = dims.iter().product();
    let length = dims.last().copied().unwrap_or(1).max(1);
    let is_integer = matches!(dtype, DataType::I64 | DataType::I32);
    if is_integer {
        let rows = vocabulary(model, &value.name);
        let below = rows.unwrap_or(LEAST_VOCABULARY).max(1);
        let (integers, what): (Vec<i64>, String) = match () {
            () if name.contains("mask") => (vec![1; count], "ones".into()),
            () if name.contains("token_type") => (vec![0; count], "zeros".into()),
            () if name.contains("position") => {
                ((0..count).map(|at| (at % length) as i64).collect(), "positions".into())
            }
            () if name == "sr" => (vec![16_000; count], "the rate of 16000 Hz".into()),
            () => (
                numbers(count, round).map(|n| (n % below as u64) as i64).collect(),
                match rows {
                    Some(_) => format!("ids below {below}"),
                    None => format!("numbers below {below}"),
                },
            ),
        };
        let tensor = match dtype {
            DataType::I64 => Tensor::from_slice(dims, &integers)?,
            _ => Tensor::from_slice(dims, &integers.iter().map(|&n| n as i32).collect::<Vec<_>>())?,
        };
        return Ok((tensor, what));
    }
    // A cache or a state is empty at first.
    let is_state = name.starts_with("past") || ["state", "h", "c"].contains(&name.as_str());
    let noise = || numbers(count, round).map(|number| (number % 2001) as f32 / 1000.0 - 1.0);
    Ok(match dtype {
        DataType::F32 if !is_state => {
            (Tensor::from_slice(dims, &noise().collect::<Vec<_>>())?, "noise in -1…1".into())
        }
        DataType::F16 if !is_state => {
            let noise: Vec<half::f16> = noise().map(half::f16::from_f32).collect();
            (Tensor::from_slice(dims, &noise)?, "noise in -1…1".into())
        }
        other => (Tensor::zeros(other, dims)?, "zeros".into()),
    })
}

/// The rows of the table that an input picks from: a larger id would be an error.
fn vocabulary(model: &Model, input: &str) -> Option<usize> {
    let nodes = model.nodes();
    let initializer = |name: &str| {
        let found = model.graph().initializer.iter().find(|tensor| tensor.name == name)?;
        found.dims.first().and_then(|&rows| usize::try_from(rows).ok())
    };
    // Some exports cast the ids first, and quantized ones make the table from another.
    let is_id = |name: &str| {
        let from = |node: &&&holdfast_graph::proto::NodeProto| {
            node.op_type == "Cast" && node.output.first().is_some_and(|output| output == name)
        };
        let cast = nodes.iter().find(from).and_then(|node| node.input.first());
        name == input || cast.is_some_and(|from| from == input)
    };
    let table = |name: &String| {
        let made = nodes.iter().find(|node| node.output.first() == Some(name));
        let source = made.and_then(|node| node.input.first());
        initializer(name).or_else(|| initializer(source?))
    };
    let gathers = nodes.iter().filter(|node| node.op_type.starts_with("Gather"));
    let picked = gathers.filter(|node| node.input.get(1).is_some_and(|name| is_id(name)));
    picked.filter_map(|node| table(node.input.first()?)).min()
}

fn kind(declared: &[Value], role: &str) -> ModelKind {
    let has = |name: &str| declared.iter().any(|value| value.name == name);
    let pictures = declared.iter().any(|value| {
        value.dtype == Some(DataType::F32) && value.dims.as_ref().is_some_and(|d| d.len() == 4)
    });
    match () {
        () if role.starts_with("decoder") => ModelKind::Generation,
        () if has("input_ids") && has("pixel_values") => ModelKind::Multimodal,
        () if has("input_ids") => ModelKind::Text,
        () if has("input_features") || has("input_values") => ModelKind::Audio,
        () if pictures => ModelKind::Vision,
        () => ModelKind::Other,
    }
}

/// The same numbers every time, and others in every round.
fn numbers(count: usize, round: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(2 * round + 1);
    (0..count).map(move |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    })
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::synth::{Options, synth};
    use holdfast_testkit::{Builder, fixed, named};

    use super::*;

    fn small(kind: &str) -> Model {
        let members = synth(kind.parse().unwrap(), &Options::default()).unwrap();
        members.into_iter().next().unwrap().model
    }

    fn fed(model: &Model, dims: &[(String, usize)]) -> Vec<String> {
        feed(model, "model", &Sizes { batch: 2, tokens: 16, dims }).unwrap().fed
    }

    #[test]
    fn text_models_get_ids_that_they_know() {
        let model = small("bert");
        assert_eq!(
            fed(&model, &[]),
            [
                "input_ids i64[2, 16] ids below 256",
                "attention_mask i64[2, 16] ones",
                "token_type_ids i64[2, 16] zeros",
            ]
        );
        let feed = feed(&model, "model", &Sizes { batch: 1, tokens: 64, dims: &[] }).unwrap();
        let ids = feed.tensors[0].1.to_vec::<i64>().unwrap();
        assert!(ids.iter().all(|id| (0..256).contains(id)), "{ids:?}");
        assert!(ids.iter().any(|id| *id != ids[0]), "{ids:?}");
        assert_eq!(feed.kind, ModelKind::Text);
    }

    #[test]
    fn a_size_that_the_user_gives_counts_and_one_that_nothing_has_is_refused() {
        let model = small("bert");
        let dims = [("sequence".to_owned(), 7)];
        assert_eq!(fed(&model, &dims)[0], "input_ids i64[2, 7] ids below 256");
        let dims = [("seqence".to_owned(), 7)];
        let sizes = Sizes { batch: 2, tokens: 16, dims: &dims };
        let error = feed(&model, "model", &sizes).err().unwrap();
        assert!(error.to_string().contains("no input has a dimension `seqence`"), "{error}");
    }

    #[test]
    fn pictures_and_caches_have_usual_sizes() {
        let mut builder = Builder::new("inputs", 0);
        let picture = ["batch", "channels", "height", "width"].map(named);
        builder.input("pixel_values", DataType::F32, &picture);
        let cache = [named("batch"), fixed(4), named("past_sequence_length"), fixed(8)];
        builder.input("past_key_values.0.key", DataType::F32, &cache);
        let mask = [named("batch"), named("past_sequence_length + 1")];
        builder.input("attention_mask", DataType::I64, &mask);
        let same = builder.node("Identity", &["pixel_values"], &[]);
        builder.output("y", &same, DataType::F32, &picture);
        assert_eq!(
            fed(&builder.finish().unwrap(), &[]),
            [
                "pixel_values f32[2, 3, 224, 224] noise in -1…1",
                "past_key_values.0.key f32[2, 4, 16, 8] zeros",
                "attention_mask i64[2, 17] ones",
            ]
        );
    }

    #[test]
    fn every_round_has_other_ids_and_the_same_sizes() {
        let sizes = Sizes { batch: 2, tokens: 16, dims: &[] };
        let ids = |round| {
            let fed = feed_round(&small("bert"), "model", &sizes, round).unwrap();
            (fed.fed, fed.tensors[0].1.to_vec::<i64>().unwrap())
        };
        assert_eq!(ids(1), ids(1));
        assert_eq!(ids(1).0, ids(2).0);
        assert_ne!(ids(1).1, ids(2).1);
    }

    #[test]
    fn what_would_not_fit_into_memory_is_refused() {
        let sizes = Sizes { batch: 1 << 20, tokens: 1 << 20, dims: &[] };
        let error = feed(&small("bert"), "model", &sizes).err().unwrap();
        assert!(format!("{error:#}").contains("too large"), "{error:#}");
    }
}

//! Inputs made from what a model declares: ids that it knows, masks of ones, noise.

use holdfast_graph::proto::NodeProto;
use holdfast_graph::{DataType, Dim, Model, Tensor, Value};

/// Sizes for what a model leaves open.
#[derive(Clone, Copy, Debug)]
pub struct Sizes<'a> {
    /// Rows.
    pub batch: usize,
    /// Their length, where they have one.
    pub tokens: usize,
    /// Named dimensions whose size is given.
    pub dims: &'a [(String, usize)],
}

/// One input.
#[derive(Clone, Debug)]
pub struct Fed {
    /// Its name.
    pub name: String,
    /// Its value.
    pub tensor: Tensor,
    /// What that is, for people: `ids below 256`.
    pub what: String,
}

/// Why no inputs can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// A size was given for a dimension that there is not.
    #[error("no input has a dimension `{0}`; `holdfast show` lists them")]
    NoSuchDimension(String),
    /// An input of which too little is known.
    #[error("no input can be made for `{input}`: {why}")]
    Input {
        /// The input.
        input: String,
        /// Why.
        why: String,
    },
}

/// Elements that an input may have: more is a size that was not meant.
const MOST_ELEMENTS: usize = 1 << 28;
/// The side of a picture where the model takes any.
const SIDE: usize = 224;
/// Ids stay below this where the model does not tell: the smallest vocabulary in use.
const LEAST_VOCABULARY: usize = 256;

/// Makes an input for each that the model declares, with other ids and other noise for every round.
pub fn feed(model: &Model, sizes: &Sizes<'_>, round: u64) -> Result<Vec<Fed>, FeedError> {
    let declared = model.inputs();
    let named = |name: &String| {
        let dims = declared.iter().filter_map(|value| value.dims.as_ref()).flatten();
        dims.into_iter().any(|dim| matches!(dim, Dim::Named(of) if of == name))
    };
    if let Some((name, _)) = sizes.dims.iter().find(|(name, _)| !named(name)) {
        return Err(FeedError::NoSuchDimension(name.clone()));
    }
    let fed = |value: &Value| {
        let cannot = |why| FeedError::Input { input: value.name.clone(), why };
        let dims = sizes.of(value).map_err(cannot)?;
        let (tensor, what) = make(model, value, &dims, round).map_err(cannot)?;
        Ok(Fed { name: value.name.clone(), tensor, what })
    };
    declared.iter().map(fed).collect()
}

impl Sizes<'_> {
    fn of(&self, value: &Value) -> Result<Vec<usize>, String> {
        let Some(dims) = &value.dims else { return Err("the model does not say its shape".into()) };
        let rank = dims.len();
        let size = |(axis, dim): (usize, &Dim)| match dim {
            Dim::Fixed(size) => *size,
            Dim::Named(name) => self.named(name, axis, rank),
            Dim::Unknown => self.usual(axis, rank),
        };
        let dims: Vec<usize> = dims.iter().enumerate().map(size).collect();
        let elements = dims.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
            return Err(format!("{dims:?} is too large; choose its sizes with --dim NAME=SIZE"));
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
) -> Result<(Tensor, String), String> {
    let Some(dtype) = value.dtype else { return Err("the model does not say its type".into()) };
    let wrong = |error: holdfast_graph::TensorError| error.to_string();
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
            DataType::I64 => Tensor::from_slice(dims, &integers).map_err(wrong)?,
            _ => {
                let integers: Vec<i32> = integers.iter().map(|&n| n as i32).collect();
                Tensor::from_slice(dims, &integers).map_err(wrong)?
            }
        };
        return Ok((tensor, what));
    }
    // A cache or a state is empty at first.
    let is_state = name.starts_with("past") || ["state", "h", "c"].contains(&name.as_str());
    let noise = || numbers(count, round).map(|number| (number % 2001) as f32 / 1000.0 - 1.0);
    Ok(match dtype {
        DataType::F32 if !is_state => {
            let noise: Vec<f32> = noise().collect();
            (Tensor::from_slice(dims, &noise).map_err(wrong)?, "noise in -1…1".into())
        }
        DataType::F16 if !is_state => {
            let noise: Vec<half::f16> = noise().map(half::f16::from_f32).collect();
            (Tensor::from_slice(dims, &noise).map_err(wrong)?, "noise in -1…1".into())
        }
        other => (Tensor::zeros(other, dims).map_err(wrong)?, "zeros".into()),
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
        let from = |node: &&&NodeProto| {
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
    use super::*;
    use crate::synth::{Options, synth};
    use crate::{Builder, fixed, named};

    fn small(kind: &str) -> Model {
        let members = synth(kind.parse().unwrap(), &Options::default()).unwrap();
        members.into_iter().next().unwrap().model
    }

    fn fed(model: &Model, dims: &[(String, usize)]) -> Vec<String> {
        words(&feed(model, &Sizes { batch: 2, tokens: 16, dims }, 0).unwrap())
    }

    fn words(fed: &[Fed]) -> Vec<String> {
        let word = |Fed { name, tensor, what }: &Fed| {
            format!("{name} {}{:?} {what}", tensor.dtype(), tensor.dims())
        };
        fed.iter().map(word).collect()
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
        let fed = feed(&model, &Sizes { batch: 1, tokens: 64, dims: &[] }, 0).unwrap();
        let ids = fed[0].tensor.to_vec::<i64>().unwrap();
        assert!(ids.iter().all(|id| (0..256).contains(id)), "{ids:?}");
        assert!(ids.iter().any(|id| *id != ids[0]), "{ids:?}");
    }

    #[test]
    fn a_size_that_the_user_gives_counts_and_one_that_nothing_has_is_refused() {
        let model = small("bert");
        let dims = [("sequence".to_owned(), 7)];
        assert_eq!(fed(&model, &dims)[0], "input_ids i64[2, 7] ids below 256");
        let dims = [("seqence".to_owned(), 7)];
        let sizes = Sizes { batch: 2, tokens: 16, dims: &dims };
        let error = feed(&model, &sizes, 0).unwrap_err();
        assert_eq!(error, FeedError::NoSuchDimension("seqence".to_owned()));
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
            let fed = feed(&small("bert"), &sizes, round).unwrap();
            (words(&fed), fed[0].tensor.to_vec::<i64>().unwrap())
        };
        assert_eq!(ids(1), ids(1));
        assert_eq!(ids(1).0, ids(2).0);
        assert_ne!(ids(1).1, ids(2).1);
    }

    #[test]
    fn what_would_not_fit_into_memory_is_refused() {
        let sizes = Sizes { batch: 1 << 20, tokens: 1 << 20, dims: &[] };
        let error = feed(&small("bert"), &sizes, 0).unwrap_err();
        assert!(error.to_string().contains("too large"), "{error}");
    }
}

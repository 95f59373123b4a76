//! What is measured: the columns of the table, the families of models, and inputs for them.

use anyhow::{Context, Result, bail};
use holdfast_devices::cpu::Target;
use holdfast_graph::{DataType, Dim, Model, Tensor, Value};
use holdfast_pool::Choice;
use holdfast_testkit::{Architecture, Numbers, Recipe, Size, families};
use holdfast_wire::Backend;

/// A column of the table: what models run on, and how large they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Column {
    Cpu,
    Wasm,
    WebGpu,
}

impl Column {
    /// All of them, the smallest models first: what is wrong shows early.
    pub(super) const ALL: [Column; 3] = [Column::WebGpu, Column::Wasm, Column::Cpu];

    pub(super) fn name(self) -> &'static str {
        match self {
            Column::Cpu => "cpu",
            Column::Wasm => "wasm",
            Column::WebGpu => "webgpu",
        }
    }

    pub(super) fn choice(self) -> Choice {
        self.backend().map_or(Choice::Cpu, Choice::Lane)
    }

    pub(super) fn backend(self) -> Option<Backend> {
        match self {
            Column::Cpu => None,
            Column::Wasm => Some(Backend::Wasm),
            Column::WebGpu => Some(Backend::Webgpu),
        }
    }

    pub(super) fn target(self) -> Target {
        match self {
            Column::Cpu => Target::Cpu,
            Column::Wasm => Target::Wasm,
            Column::WebGpu => Target::WebGpu,
        }
    }

    pub(super) fn size(self) -> Size {
        match self {
            Column::Cpu => Size::new(12, 768),
            Column::Wasm => Size::new(6, 512),
            Column::WebGpu => Size::new(2, 128),
        }
    }

    pub(super) fn tokens(self) -> usize {
        match self {
            Column::Cpu | Column::Wasm => 128,
            Column::WebGpu => 32,
        }
    }

    /// Size and length, for people.
    pub(super) fn sizes(self) -> String {
        let Size { layers, hidden, .. } = self.size();
        format!("{layers}×{hidden}, {} tokens, {}", self.tokens(), self.name())
    }
}

/// Models that belong together, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    /// Three classifiers on one BERT.
    Heads,
    /// Four adapters of rank 8 on one BERT.
    Adapters,
    /// A decoder and its twin that goes on from a cache of keys and values.
    Twins,
    /// Two BERTs with other weights each.
    Unrelated,
}

impl Family {
    pub(super) const ALL: [Family; 4] =
        [Family::Heads, Family::Adapters, Family::Twins, Family::Unrelated];

    pub(super) fn name(self) -> &'static str {
        match self {
            Family::Heads => "3 heads on one trunk",
            Family::Adapters => "4 rank-8 adapters on one base",
            Family::Twins => "decoder and with-past twin",
            Family::Unrelated => "2 unrelated models",
        }
    }

    pub(super) fn models(self, size: Size) -> Result<Vec<Model>> {
        const SEED: u64 = 6;
        let recipe = Recipe::new(size.clone(), SEED);
        let members = match self {
            Family::Heads => families::classifiers(&recipe, 3)?,
            Family::Adapters => families::adapters(Architecture::Bert, &recipe, 4, 8)?,
            Family::Twins => families::decoder_twins(&recipe)?,
            Family::Unrelated => {
                let mut members = Architecture::Bert.build(&recipe)?;
                members.extend(Architecture::Bert.build(&Recipe::new(size, SEED + 1))?);
                members
            }
        };
        Ok(members.into_iter().map(|member| member.model).collect())
    }
}

/// Tokens that every model knows, the one that keeps engines warm too.
const VOCABULARY: usize = 256;

/// Inputs for a model of text, which another number makes others. One that goes on from a cache
/// gets one token more than the cache has.
pub(super) fn inputs(
    values: &[Value],
    tokens: usize,
    number: u64,
) -> Result<Vec<(String, Tensor)>> {
    let goes_on = values.iter().any(|value| value.name.starts_with("past_key_values"));
    let (past, fresh) = if goes_on { (tokens - 1, 1) } else { (0, tokens) };
    let length = |value: &Value, name: &str| match name {
        "batch" => Ok(1),
        "sequence" => Ok(fresh),
        "past_sequence" => Ok(past),
        "total_sequence" => Ok(tokens),
        other => bail!("no size is known for `{other}` of input `{}`", value.name),
    };
    let make = |value: &Value| -> Result<(String, Tensor)> {
        let dims = value.dims.as_ref().with_context(|| format!("`{}` has no shape", value.name))?;
        let dims = dims
            .iter()
            .map(|dim| match dim {
                Dim::Fixed(size) => Ok(*size),
                Dim::Named(name) => length(value, name),
                Dim::Unknown => bail!("a size of input `{}` is not known", value.name),
            })
            .collect::<Result<Vec<usize>>>()?;
        let count: usize = dims.iter().product();
        let mut numbers = Numbers::labelled(number, &value.name);
        let tensor = match (value.dtype, value.name.as_str()) {
            (Some(DataType::I64), "attention_mask") => {
                Tensor::from_slice(&dims, &vec![1i64; count])
            }
            (Some(DataType::I64), "token_type_ids") => Tensor::zeros(DataType::I64, &dims),
            (Some(DataType::I64), "position_ids") => {
                let positions: Vec<i64> = (past..past + count).map(|at| at as i64).collect();
                Tensor::from_slice(&dims, &positions)
            }
            (Some(DataType::I64), "input_ids") => {
                let ids: Vec<i64> = (0..count).map(|_| numbers.below(VOCABULARY) as i64).collect();
                Tensor::from_slice(&dims, &ids)
            }
            (Some(DataType::F32), _) => {
                let noise: Vec<f32> =
                    (0..count).map(|_| numbers.below(2000) as f32 / 1000.0 - 1.0).collect();
                Tensor::from_slice(&dims, &noise)
            }
            _ => bail!("no inputs are known for `{}`", value.name),
        };
        Ok((value.name.clone(), tensor?))
    };
    values.iter().map(make).collect()
}

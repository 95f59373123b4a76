//! What a model is built from: a size, a style, a source of weights, perhaps an adapter.

use std::str::FromStr;

use crate::builder::DEFAULT_OPSET;
use crate::error::{BuildError, UnknownName};
use crate::weights::Weights;

/// The oldest opset that models are built for.
pub const OLDEST_OPSET: i64 = 12;
/// The newest one.
pub const NEWEST_OPSET: i64 = 21;

/// Everything that a model of some architecture is built from.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// How large it is.
    pub size: Size,
    /// How it is written down.
    pub style: Style,
    /// Where its weights come from.
    pub weights: Weights,
    /// What is added to its query and value projections.
    pub adapter: Option<Adapter>,
}

impl Recipe {
    /// A model of this size, with the weights of a seed, in the default style.
    pub fn new(size: Size, seed: u64) -> Recipe {
        Recipe { size, style: Style::default(), weights: Weights::new(seed), adapter: None }
    }

    /// A model small enough for any test.
    pub fn tiny(seed: u64) -> Recipe {
        Recipe::new(Size::tiny(), seed)
    }

    /// Checks what holds for all architectures.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        self.size.check()?;
        self.style.check()?;
        match &self.adapter {
            Some(adapter) if adapter.rank == 0 => Err(BuildError::Zero("rank")),
            _ => Ok(()),
        }
    }
}

/// How large a model is. Architectures ignore what they do not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Layers.
    pub layers: usize,
    /// Width of the values between layers.
    pub hidden: usize,
    /// Attention heads; a divisor of `hidden`.
    pub heads: usize,
    /// Heads of keys and values where several query heads share one; a divisor of `heads`.
    pub key_value_heads: usize,
    /// Width inside the feed-forward part.
    pub intermediate: usize,
    /// Tokens that the model knows.
    pub vocabulary: usize,
    /// Longest sequence, or (Whisper) the length of the encoder's output.
    pub positions: usize,
    /// Height and width of a picture; a multiple of `patch`.
    pub image: usize,
    /// Height and width of a patch of a picture.
    pub patch: usize,
}

impl Size {
    /// Two layers of 64: runs anywhere in milliseconds.
    pub fn tiny() -> Size {
        Size {
            layers: 2,
            hidden: 64,
            heads: 4,
            key_value_heads: 2,
            intermediate: 128,
            vocabulary: 256,
            positions: 64,
            image: 32,
            patch: 8,
        }
    }

    /// Layers × hidden in the proportions of real models: heads of 64 (32 below 384), an
    /// inner width of four times `hidden`, the vocabulary of BERT, pictures of 224.
    pub fn new(layers: usize, hidden: usize) -> Size {
        let head = if hidden < 384 { 32 } else { 64 };
        let heads = (hidden / head).max(1);
        Size {
            layers,
            hidden,
            heads,
            key_value_heads: heads,
            intermediate: 4 * hidden,
            vocabulary: 30_522,
            positions: 512,
            image: 224,
            patch: 16,
        }
    }

    /// Width of one attention head.
    pub fn head(&self) -> usize {
        self.hidden / self.heads
    }

    /// Patches of a picture.
    pub fn patches(&self) -> usize {
        (self.image / self.patch).pow(2)
    }

    fn check(&self) -> Result<(), BuildError> {
        let parts = [
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("heads", self.heads),
            ("key_value_heads", self.key_value_heads),
            ("intermediate", self.intermediate),
            ("vocabulary", self.vocabulary),
            ("positions", self.positions),
            ("image", self.image),
            ("patch", self.patch),
        ];
        if let Some((name, _)) = parts.into_iter().find(|&(_, size)| size == 0) {
            return Err(BuildError::Zero(name));
        }
        multiple(("hidden", self.hidden), ("heads", self.heads))?;
        multiple(("heads", self.heads), ("key_value_heads", self.key_value_heads))?;
        multiple(("image", self.image), ("patch", self.patch))
    }
}

fn multiple(
    (what, value): (&'static str, usize),
    (of, divisor): (&'static str, usize),
) -> Result<(), BuildError> {
    if value.is_multiple_of(divisor) {
        Ok(())
    } else {
        Err(BuildError::NotAMultiple { what, value, of, divisor })
    }
}

/// How a model is written down: exporters differ, the function does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// The version of the standard operators.
    pub opset: i64,
    /// How a layer normalisation is written.
    pub layer_norm: LayerNorm,
}

impl Default for Style {
    fn default() -> Style {
        Style { opset: DEFAULT_OPSET, layer_norm: LayerNorm::Operator }
    }
}

impl Style {
    fn check(&self) -> Result<(), BuildError> {
        let &Style { opset, layer_norm } = self;
        if !(OLDEST_OPSET..=NEWEST_OPSET).contains(&opset) {
            let (oldest, newest) = (OLDEST_OPSET, NEWEST_OPSET);
            return Err(BuildError::Opset { found: opset, oldest, newest });
        }
        if opset < 17 && layer_norm == LayerNorm::Operator {
            return Err(BuildError::NoLayerNormalization);
        }
        Ok(())
    }
}

/// How a layer normalisation is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerNorm {
    /// One `LayerNormalization`.
    Operator,
    /// The nine nodes that exporters wrote before there was an operator.
    Decomposed,
}

impl FromStr for LayerNorm {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<LayerNorm, UnknownName> {
        match name {
            "operator" => Ok(LayerNorm::Operator),
            "decomposed" => Ok(LayerNorm::Decomposed),
            _ => Err(UnknownName {
                what: "way to write a layer normalisation",
                name: name.to_owned(),
                known: vec!["operator", "decomposed"],
            }),
        }
    }
}

/// A low-rank addition to the query and value projections, not merged into them:
/// `x @ W + (x @ A) @ B * scale`.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// Columns of `A`, rows of `B`.
    pub rank: usize,
    /// What the addition is multiplied with.
    pub scale: f32,
    /// Where `A` and `B` come from.
    pub weights: Weights,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Recipe)) -> String {
        let mut recipe = Recipe::tiny(1);
        assert!(recipe.check().is_ok());
        change(&mut recipe);
        recipe.check().unwrap_err().to_string()
    }

    #[test]
    fn refuses_sizes_that_do_not_fit_together() {
        assert_eq!(
            refusal(|recipe| recipe.size.heads = 5),
            "hidden (64) must be a multiple of heads (5)"
        );
        assert_eq!(
            refusal(|recipe| recipe.size.key_value_heads = 3),
            "heads (4) must be a multiple of key_value_heads (3)"
        );
        assert_eq!(refusal(|recipe| recipe.size.vocabulary = 0), "vocabulary must be at least 1");
    }

    #[test]
    fn refuses_styles_that_do_not_exist() {
        assert!(refusal(|recipe| recipe.style.opset = 9).contains("12 to 21"));
        assert!(refusal(|recipe| recipe.style.opset = 14).contains("`decomposed`"));
    }

    #[test]
    fn knows_real_proportions() {
        let size = Size::new(12, 512);
        assert_eq!((size.heads, size.head(), size.intermediate), (8, 64, 2048));
        assert_eq!(Size::new(6, 384).heads, 6);
        assert_eq!(Size::new(2, 64).heads, 2);
    }
}

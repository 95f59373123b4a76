//! Self-attention as encoders export it.

use crate::layers::{Net, Part};
use crate::weights::Init;

/// How one architecture writes its self-attention.
pub(crate) struct SelfAttention<'a> {
    /// The projections: query, key, value, output.
    pub(crate) projections: [Projection<'a>; 4],
    /// Where scores are scaled.
    pub(crate) scale: Scale,
    /// What hides positions.
    pub(crate) mask: Mask<'a>,
    /// Whether the length in reshapes is read from the value or left to `-1`.
    pub(crate) length: Length,
}

/// One projection: the part it is, and whether it has a bias.
#[derive(Clone, Copy)]
pub(crate) enum Projection<'a> {
    Biased(&'a str),
    Plain(&'a str),
    /// Without a bias and with weights that make up for unscaled scores.
    Small(&'a str),
}

/// How scores get their scale, one over the root of a head's width.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// `Div` after the product.
    DivideScores,
    /// `Div` of the query before it.
    DivideQuery,
    /// `Mul` of the query before it.
    MultiplyQuery,
    /// Not at all; the weights make up for it.
    None,
}

/// How positions are hidden.
#[derive(Clone, Copy)]
pub(crate) enum Mask<'a> {
    /// Not at all.
    None,
    /// By adding this.
    Add(&'a str),
    /// By overwriting scores where this attention mask is zero.
    Fill(&'a str),
}

/// How the length is written in reshapes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Length {
    Read,
    Inferred,
}

impl SelfAttention<'_> {
    /// The attention's output for `x` of [batch, sequence, hidden].
    pub(crate) fn build(&self, net: &mut Net<'_>, x: &str) -> String {
        let [query, key, value, output] = self.projections;
        let root = (net.size().head() as f32).sqrt();
        let mut query = project(net, query, x);
        if self.scale == Scale::MultiplyQuery {
            let factor = net.scalar(1.0 / root);
            query = net.op("Mul", &[&query, &factor]);
        }
        let key = project(net, key, x);
        let value = project(net, value, x);
        let key = self.split_heads(net, &key, &[0, 2, 3, 1]);
        let value = self.split_heads(net, &value, &[0, 2, 1, 3]);
        let mut query = self.split_heads(net, &query, &[0, 2, 1, 3]);
        if self.scale == Scale::DivideQuery {
            let divisor = net.scalar(root);
            query = net.op("Div", &[&query, &divisor]);
        }
        let mut scores = net.op("MatMul", &[&query, &key]);
        if self.scale == Scale::DivideScores {
            let divisor = net.scalar(root);
            scores = net.op("Div", &[&scores, &divisor]);
        }
        let scores = match self.mask {
            Mask::None => scores,
            Mask::Add(mask) => net.op("Add", &[&scores, mask]),
            Mask::Fill(attention_mask) => fill(net, &scores, attention_mask),
        };
        let context = attend(net, &scores, &value);
        let merged = self.merge_heads(net, &context);
        project(net, output, &merged)
    }

    fn split_heads(&self, net: &mut Net<'_>, x: &str, permutation: &[i64]) -> String {
        let (heads, head) = (net.size().heads as i64, net.size().head() as i64);
        let parts = [Part::Of(x, 0), self.length_of(x), Part::Fixed(heads), Part::Fixed(head)];
        let split = net.reshape(x, &parts);
        net.transpose(&split, permutation)
    }

    fn merge_heads(&self, net: &mut Net<'_>, context: &str) -> String {
        let hidden = net.size().hidden as i64;
        let rows = net.transpose(context, &[0, 2, 1, 3]);
        net.reshape(&rows, &[Part::Of(&rows, 0), self.length_of(&rows), Part::Fixed(hidden)])
    }

    fn length_of<'v>(&self, x: &'v str) -> Part<'v> {
        match self.length {
            Length::Read => Part::Of(x, 1),
            Length::Inferred => Part::Fixed(-1),
        }
    }
}

/// Softmax of the scores, then the weighted values.
pub(crate) fn attend(net: &mut Net<'_>, scores: &str, value: &str) -> String {
    let shares = net.op_with("Softmax", &[scores], &[crate::attribute::int("axis", -1)]);
    net.op("MatMul", &[&shares, value])
}

fn project(net: &mut Net<'_>, projection: Projection<'_>, x: &str) -> String {
    let hidden = net.size().hidden;
    match projection {
        Projection::Biased(part) => net.linear(part, x, hidden, hidden),
        Projection::Plain(part) => net.projection(part, x, hidden, hidden),
        Projection::Small(part) => {
            let init = Init::fan_in(hidden * net.size().head());
            net.scaled_projection(part, x, [hidden, hidden], init)
        }
    }
}

/// DistilBERT's way: Equal, Reshape, Expand, Where.
fn fill(net: &mut Net<'_>, scores: &str, attention_mask: &str) -> String {
    let zero = net.scalar(0i64);
    let hidden = net.op("Equal", &[attention_mask, &zero]);
    let parts = [Part::Of(attention_mask, 0), Part::Fixed(1), Part::Fixed(1), Part::Fixed(-1)];
    let hidden = net.reshape(&hidden, &parts);
    let shape = net.op("Shape", &[scores]);
    let hidden = net.op("Expand", &[&hidden, &shape]);
    let lowest = net.scalar(f32::MIN);
    net.op("Where", &[&hidden, &lowest, scores])
}

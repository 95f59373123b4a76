//! Attention and rotary embeddings, as the standard has them and as ONNX Runtime fuses them.

use super::Reason;
use super::elementwise::same_shape;
use super::node::{Node, Shape, Shapes, invalid, one, product, size, times};
use super::normalize::SOFTMAX;
use super::operator::Work::{Formula, PerOutput};
use super::operator::{Operator, row};
use super::types::SAME;

pub(super) const ONNX: &[Operator] = &[
    row("Attention", SAME, standard, Formula(|node, _| Ok(Heads::standard(node)?.work()))),
    row("RotaryEmbedding", SAME, same_shape, PerOutput(3)),
];

pub(super) const MICROSOFT: &[Operator] = &[
    row("Attention", SAME, projected, Formula(projected_work)),
    row("QAttention", &[super::types::Type::Same(3)], projected, Formula(projected_work)),
    row(
        "MultiHeadAttention",
        SAME,
        multi_head,
        Formula(|node, _| Ok(Heads::multi_head(node)?.work())),
    ),
    row("GroupQueryAttention", SAME, grouped, Formula(grouped_work)),
    row("RotaryEmbedding", SAME, same_shape, PerOutput(3)),
    row("RelativePositionBias", SAME, relative_bias, super::operator::Work::Moves),
];

/// The sizes of an attention: queries attend to keys that were kept and to new ones.
struct Heads {
    batch: usize,
    queries: usize,
    past: usize,
    keys: usize,
    heads: usize,
    key_heads: usize,
    key_width: usize,
    value_width: usize,
}

impl Heads {
    fn total(&self) -> Result<usize, Reason> {
        self.past.checked_add(self.keys).ok_or(Reason::TooLarge)
    }

    /// Scores, their scale, softmax, weighted sum.
    fn work(&self) -> u64 {
        let total = self.past.saturating_add(self.keys);
        let scores = times(&[self.batch, self.heads, self.queries, total]);
        let products = times(&[2, self.key_width]).saturating_add(times(&[2, self.value_width]));
        scores.saturating_mul(products.saturating_add(SOFTMAX + 1))
    }

    fn present(&self, width: usize) -> Result<Shape, Reason> {
        Ok(vec![self.batch, self.key_heads, self.total()?, width].into())
    }

    /// The standard operator: [batch, length, heads x width] or [batch, heads, length, width].
    fn standard(node: &Node<'_>) -> Result<Heads, Reason> {
        let count = |name: &str| node.attribute_int(name).map_or(Ok(0), size);
        let (query_heads, key_heads) = (count("q_num_heads")?, count("kv_num_heads")?);
        let query = side(node.dims(0)?, query_heads)?;
        let key = side(node.dims(1)?, key_heads)?;
        let value = side(node.dims(2)?, key_heads)?;
        let past = if node.has(4) { side(node.dims(4)?, key_heads)?.length } else { 0 };
        Ok(Heads {
            batch: query.batch,
            queries: query.length,
            past,
            keys: key.length,
            heads: query.heads,
            key_heads: key.heads,
            key_width: key.width,
            value_width: value.width,
        })
    }

    /// Separate query, key and value, or packed along the heads.
    fn multi_head(node: &Node<'_>) -> Result<Heads, Reason> {
        let heads = node.attribute_size("num_heads")?;
        if let [batch, length, heads, 3, width] = *node.dims(0)? {
            return Ok(Heads::uniform(batch, length, 0, length, heads, width));
        }
        let query = side(node.dims(0)?, heads)?;
        let past = if node.has(6) { side(node.dims(6)?, heads)?.length } else { 0 };
        let (key, value) = match *node.dims(1)? {
            [_, length, heads, 2, width] => {
                return Ok(Heads::uniform(query.batch, query.length, past, length, heads, width));
            }
            _ => (side(node.dims(1)?, heads)?, side(node.dims(2)?, heads)?),
        };
        Ok(Heads {
            batch: query.batch,
            queries: query.length,
            past,
            keys: key.length,
            heads: query.heads,
            key_heads: key.heads,
            key_width: key.width,
            value_width: value.width,
        })
    }

    fn uniform(
        batch: usize,
        queries: usize,
        past: usize,
        keys: usize,
        heads: usize,
        width: usize,
    ) -> Heads {
        let (key_width, value_width) = (width, width);
        Heads { batch, queries, past, keys, heads, key_heads: heads, key_width, value_width }
    }
}

/// One of query, key and value.
struct Side {
    batch: usize,
    heads: usize,
    length: usize,
    width: usize,
}

fn side(dims: &[usize], heads: usize) -> Result<Side, Reason> {
    match *dims {
        [batch, heads, length, width] => Ok(Side { batch, heads, length, width }),
        [batch, length, hidden] if heads > 0 && hidden % heads == 0 => {
            Ok(Side { batch, heads, length, width: hidden / heads })
        }
        _ => Err(invalid(format!("{dims:?} does not split into {heads} heads"))),
    }
}

/// The output in the query's layout, the keys and values to keep, and the scores.
fn standard(node: &Node<'_>) -> Shapes {
    let heads = Heads::standard(node)?;
    let output = if node.dims(0)?.len() == 4 {
        vec![heads.batch, heads.heads, heads.queries, heads.value_width]
    } else {
        vec![heads.batch, heads.queries, product(&[heads.heads, heads.value_width])?]
    };
    let scores = vec![heads.batch, heads.heads, heads.queries, heads.total()?];
    let (keys, values) = (heads.present(heads.key_width)?, heads.present(heads.value_width)?);
    Ok(vec![output.into(), keys, values, scores.into()])
}

fn multi_head(node: &Node<'_>) -> Shapes {
    let heads = Heads::multi_head(node)?;
    let output = vec![heads.batch, heads.queries, product(&[heads.heads, heads.value_width])?];
    let (keys, values) = (heads.present(heads.key_width)?, heads.present(heads.value_width)?);
    let scores = vec![heads.batch, heads.heads, heads.queries, heads.total()?];
    Ok(vec![output.into(), keys, values, scores.into()])
}

/// The operator that also projects: its sizes, and the width of what it projects from and to.
fn projection(node: &Node<'_>) -> Result<(Heads, usize, usize), Reason> {
    let [batch, length, inputs] = node.ranked(0)?;
    let heads = node.attribute_size("num_heads")?;
    let columns = match *node.dims(1)? {
        [_, columns] => columns,
        ref dims => return Err(invalid(format!("weight {dims:?} is no matrix"))),
    };
    let (key, value) = match node.attribute_ints("qkv_hidden_sizes") {
        Some(&[_, key, value]) => (size(key)?, size(value)?),
        _ => (columns / 3, columns / 3),
    };
    if heads == 0 || key % heads != 0 || value % heads != 0 {
        return Err(invalid(format!("{key} and {value} do not split into {heads} heads")));
    }
    let kept = if node.operator() == "QAttention" { 8 } else { 4 };
    let past = if node.has(kept) {
        let [_, _, _, past, _] = node.ranked(kept)?;
        past
    } else {
        0
    };
    let mut sizes = Heads::uniform(batch, length, past, length, heads, key / heads);
    sizes.value_width = value / heads;
    Ok((sizes, inputs, columns))
}

fn projected(node: &Node<'_>) -> Shapes {
    let (heads, ..) = projection(node)?;
    let output = vec![heads.batch, heads.queries, product(&[heads.heads, heads.value_width])?];
    let present = vec![2, heads.batch, heads.heads, heads.total()?, heads.key_width];
    Ok(vec![output.into(), present.into()])
}

fn projected_work(node: &Node<'_>, _: &[usize]) -> Result<u64, Reason> {
    let (heads, inputs, columns) = projection(node)?;
    let rows = times(&[heads.batch, heads.queries, columns]);
    let projections = rows.saturating_mul(times(&[2, inputs]).saturating_add(1));
    Ok(projections.saturating_add(heads.work()))
}

/// Groups of query heads share a key head. How many keys are kept is an input of its own.
fn grouped_heads(node: &Node<'_>) -> Result<Heads, Reason> {
    let [batch, length, hidden] = node.ranked(0)?;
    let heads = node.attribute_size("num_heads")?;
    let key_heads = node.attribute_size("kv_num_heads")?;
    let packed = !node.has(1);
    let all = if packed { heads + 2 * key_heads } else { heads };
    if all == 0 || hidden % all != 0 {
        return Err(invalid(format!("{hidden} does not split into {all} heads")));
    }
    let past = if node.has(3) {
        let [_, _, past, _] = node.ranked(3)?;
        past
    } else {
        0
    };
    let mut sizes = Heads::uniform(batch, length, past, length, heads, hidden / all);
    sizes.key_heads = key_heads;
    Ok(sizes)
}

/// The keys in use, where the contents of the total length are known.
fn grouped_total(node: &Node<'_>) -> Option<usize> {
    size(node.int(6).ok()?).ok()
}

fn grouped(node: &Node<'_>) -> Shapes {
    let heads = grouped_heads(node)?;
    let output = vec![heads.batch, heads.queries, product(&[heads.heads, heads.key_width])?];
    let mut shapes = vec![Shape::from(output)];
    if let Some(total) = grouped_total(node) {
        // A buffer for kept keys may be longer than what is in use.
        let length = heads.past.max(total);
        let present = vec![heads.batch, heads.key_heads, length, heads.key_width];
        shapes.extend([Shape::from(present.clone()), Shape::from(present)]);
    }
    Ok(shapes)
}

fn grouped_work(node: &Node<'_>, _: &[usize]) -> Result<u64, Reason> {
    let mut heads = grouped_heads(node)?;
    let total = grouped_total(node);
    let total = total
        .ok_or_else(|| Reason::Values(node.proto.input.get(6).cloned().unwrap_or_default()))?;
    (heads.past, heads.keys) = (0, total);
    Ok(heads.work())
}

/// Table of buckets and heads, query length, key length.
fn relative_bias(node: &Node<'_>) -> Shapes {
    let [_, heads] = node.ranked(0)?;
    one(vec![1, heads, size(node.int(1)?)?, size(node.int(2)?)?])
}

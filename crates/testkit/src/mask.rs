//! Attention masks: added to the scores, zero where a position may be seen, hugely negative
//! where not.

use holdfast_graph::DataType;

use crate::layers::Net;

/// From an attention mask of ones and zeros: Unsqueeze, Unsqueeze, Cast, Sub, Mul.
pub(crate) fn padding(net: &mut Net<'_>, attention_mask: &str) -> String {
    let mask = net.unsqueeze(attention_mask, 1);
    let mask = net.unsqueeze(&mask, 2);
    let mask = net.cast(&mask, DataType::F32);
    let one = net.scalar(1.0f32);
    let hidden = net.op("Sub", &[&one, &mask]);
    let lowest = net.scalar(f32::MIN);
    net.op("Mul", &[&hidden, &lowest])
}

/// Hides padding and whatever comes after a position. `past` is how many positions (a scalar)
/// came before those of `ids`; the attention mask covers them too.
pub(crate) fn causal(
    net: &mut Net<'_>,
    ids: &str,
    attention_mask: &str,
    past: Option<&str>,
) -> String {
    let length = net.dimension(ids, 1);
    let zero = net.scalar(0i64);
    let (first, end) = match past {
        Some(past) => (past.to_owned(), net.op("Add", &[past, &length])),
        None => (zero.clone(), length),
    };
    let queries = net.range(&first, &end);
    let queries = net.unsqueeze(&queries, 1);
    let keys = net.range(&zero, &end);
    let keys = net.unsqueeze(&keys, 0);
    let later = net.op("Greater", &[&keys, &queries]);
    let later = net.unsqueeze(&later, 0);
    let later = net.unsqueeze(&later, 0);
    let padded = net.op("Equal", &[attention_mask, &zero]);
    let padded = net.unsqueeze(&padded, 1);
    let padded = net.unsqueeze(&padded, 2);
    let hidden = net.op("Or", &[&later, &padded]);
    let lowest = net.scalar(f32::MIN);
    let nothing = net.scalar(0.0f32);
    net.op("Where", &[&hidden, &lowest, &nothing])
}

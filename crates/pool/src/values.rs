//! What a request computes on its way, by hash: equal hashes mean the same bits on one device.
//!
//! The hash of a step is that of its segment, which is what is computed, and of what it is
//! computed from: the contents of tensors, or the hashes of earlier steps. A caller's namespace
//! goes into it, so that nobody finds out what others have computed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use holdfast_graph::{DataType, Digest, Tensor, TensorError};

use crate::batch::Inputs;
use crate::route::{Prepared, Source, Step};

/// The hashes of the steps of a route, for one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Values {
    /// Of each step, as far as that costs nothing: what no trunk is computed from is not read for it,
    /// be it a past of many megabytes.
    pub(crate) steps: Vec<Option<Digest>>,
    /// Those of the steps that other models may need too.
    pub(crate) trunks: Vec<Digest>,
}

impl Values {
    /// `None` for a model on its own, of which nothing can be shared, and for inputs that are not
    /// the model's, which the whole model says better.
    pub(crate) fn of(model: &Prepared, inputs: &Inputs, namespace: &str) -> Option<Values> {
        let declared = &model.alone()?.steps.first()?.inputs;
        let given = |name: &str| inputs.iter().any(|(given, _)| given == name);
        if inputs.len() != declared.len() || !declared.iter().all(|(name, _)| given(name)) {
            return None;
        }
        let contents = contents(model, inputs)?;
        let mut steps: Vec<Option<Digest>> = Vec::with_capacity(model.steps.len());
        for step in &model.steps {
            let text = format!("{namespace:?}\n{}", model.segment_of(step).0);
            let text = step.inputs.iter().try_fold(text, |text, (input, source)| {
                let from = match source {
                    Source::Input { name, casts } => {
                        contents.get(&(name.as_str(), casts.as_slice()))?.to_string()
                    }
                    Source::Step(from) => format!("{} {:?}", steps[from.step]?, from.output),
                    Source::Constant(tensor) => content(tensor).to_string(),
                };
                Some(format!("{text}\n{input:?} {from}"))
            });
            steps.push(text.map(|text| Digest::of(text.as_bytes())));
        }
        let trunks = model.steps.iter().zip(&steps).filter(|(step, _)| step.trunk);
        let trunks = trunks.map(|(_, digest)| *digest).collect::<Option<_>>()?;
        Some(Values { steps, trunks })
    }

    /// The trunks of a route with their hashes.
    pub(crate) fn of_trunks<'a>(
        &'a self,
        model: &'a Prepared,
    ) -> impl Iterator<Item = (&'a Step, &'a Digest)> {
        model.steps.iter().filter(|step| step.trunk).zip(&self.trunks)
    }
}

/// The hashes of the inputs that trunks are computed from, as they take them.
fn contents<'a>(
    model: &'a Prepared,
    inputs: &Inputs,
) -> Option<HashMap<(&'a str, &'a [DataType]), Digest>> {
    let mut feeds: Vec<bool> = model.steps.iter().map(|step| step.trunk).collect();
    let mut contents = HashMap::new();
    for (number, step) in model.steps.iter().enumerate().rev() {
        if !feeds[number] {
            continue;
        }
        for (_, source) in &step.inputs {
            match source {
                Source::Input { name, casts } => {
                    if let Entry::Vacant(new) = contents.entry((name.as_str(), casts.as_slice())) {
                        let (_, tensor) = inputs.iter().find(|(given, _)| given == name)?;
                        new.insert(content(&cast(tensor, casts).ok()?));
                    }
                }
                Source::Step(from) => feeds[from.step] = true,
                Source::Constant(_) => {}
            }
        }
    }
    Some(contents)
}

/// A tensor as a step takes it.
pub(crate) fn cast(tensor: &Tensor, casts: &[DataType]) -> Result<Tensor, TensorError> {
    casts.iter().try_fold(tensor.clone(), |tensor, dtype| tensor.cast_integers(*dtype))
}

/// The hash of a tensor: type, dimensions and bytes.
fn content(tensor: &Tensor) -> Digest {
    let bytes = Digest::of(tensor.bytes());
    Digest::of(format!("{}{:?} {bytes}", tensor.dtype(), tensor.dims()).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_devices::Segment;
    use holdfast_graph::{Dim, Value};
    use holdfast_models::StoredGraph;

    use super::*;
    use crate::route::{Proven, StepOutput};

    fn segment(name: &str) -> Segment {
        Segment::new(StoredGraph { graph: Digest::of(name.as_bytes()), weights: Vec::new() })
    }

    fn input(name: &str) -> (String, Source) {
        (name.to_owned(), Source::Input { name: name.to_owned(), casts: Vec::new() })
    }

    fn step(segment: usize, inputs: Vec<(String, Source)>, trunk: bool) -> Step {
        Step { segment, inputs, outputs: vec!["out".to_owned()], trunk }
    }

    /// A trunk over `ids`, a head over what it gives and `ids`, and one that takes a `past` too.
    fn model() -> Prepared {
        let declared = ["ids", "past"].map(|name| Value {
            name: name.to_owned(),
            dtype: Some(DataType::I64),
            dims: Some(vec![Dim::Fixed(1)]),
        });
        let whole = Prepared::whole(Digest::of(b"model"), segment("whole"), &declared, &[]);
        let from_trunk =
            || ("x".to_owned(), Source::Step(StepOutput { step: 0, output: "out".to_owned() }));
        let steps = vec![
            step(0, vec![input("ids")], true),
            step(1, vec![from_trunk(), input("ids")], false),
            step(2, vec![from_trunk(), input("past")], false),
        ];
        let segments = ["trunk", "head", "other"].map(segment).to_vec();
        let proven = Arc::new(Proven::default());
        Prepared::shared(Arc::new(whole), proven, segments, steps, Vec::new())
    }

    fn values(ids: i64, past: i64) -> Values {
        let of = |value| Tensor::from_slice(&[1], &[value]).unwrap();
        let inputs = vec![("ids".to_owned(), of(ids)), ("past".to_owned(), of(past))];
        Values::of(&model(), &inputs, "").unwrap()
    }

    #[test]
    fn what_no_trunk_is_computed_from_is_not_read() {
        let known = values(1, 2);
        assert!(known.steps[0].is_some() && known.steps[1].is_some());
        assert_eq!(known.steps[2], None, "it takes what is not read for anything else");
        assert_eq!(known.trunks, [known.steps[0].unwrap()]);
        assert_eq!(known, values(1, 3), "the past changes nothing that is shared");
    }

    #[test]
    fn what_a_trunk_is_computed_from_makes_another_value() {
        let (one, other) = (values(1, 2), values(2, 2));
        assert_ne!(one.steps[0], other.steps[0]);
        assert_ne!(one.steps[1], other.steps[1]);
    }
}

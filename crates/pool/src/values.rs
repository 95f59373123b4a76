//! What a request computes on its way, by hash: equal hashes mean the same bits on one device.
//!
//! The hash of a step is that of its segment, which is what is computed, and of what it is
//! computed from: the contents of tensors, or the hashes of earlier steps. A caller's namespace
//! goes into it, so that nobody finds out what others have computed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use holdfast_graph::{DataType, Digest, Tensor, TensorError};

use crate::batch::Inputs;
use crate::route::{Prepared, Source};

/// The hash of every step of a route, for one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) steps: Vec<Digest>,
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
        let mut known: HashMap<(&str, &[DataType]), Digest> = HashMap::new();
        let mut steps: Vec<Digest> = Vec::with_capacity(model.steps.len());
        for step in &model.steps {
            let mut text = format!("{namespace:?}\n{}", model.segment_of(step).0);
            for (input, source) in &step.inputs {
                let from = match source {
                    Source::Input { name, casts } => {
                        let (_, tensor) = inputs.iter().find(|(given, _)| given == name)?;
                        match known.entry((name.as_str(), casts.as_slice())) {
                            Entry::Occupied(known) => known.get().to_string(),
                            Entry::Vacant(new) => {
                                new.insert(content(&cast(tensor, casts).ok()?)).to_string()
                            }
                        }
                    }
                    Source::Step(from) => format!("{} {:?}", steps[from.step], from.output),
                    Source::Constant(tensor) => content(tensor).to_string(),
                };
                text.push_str(&format!("\n{input:?} {from}"));
            }
            steps.push(Digest::of(text.as_bytes()));
        }
        let trunks = model.steps.iter().zip(&steps).filter(|(step, _)| step.trunk);
        let trunks = trunks.map(|(_, digest)| *digest).collect();
        Some(Values { steps, trunks })
    }
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

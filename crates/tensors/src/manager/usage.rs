//! Looks over all tensors, or all of a model. These take as long as there are many.

use super::TensorSharingManager;
use crate::opportunities::{self, SharingOpportunities};
use crate::recommend::{self, Recommendation};
use crate::slots::Flags;
use crate::tensor::SharedTensor;
use crate::usage::{ModelUsage, TensorUsage};

impl TensorSharingManager {
    /// What each tensor, declaration and view of a namespace takes, by name and version.
    pub fn tensor_memory_usage(&self, namespace: &str) -> Vec<TensorUsage> {
        let mut usage: Vec<TensorUsage> = self
            .in_namespace(namespace)
            .map(|tensor| TensorUsage {
                id: tensor.id(),
                name: tensor.name().to_owned(),
                version: tensor.version(),
                dtype: tensor.dtype(),
                dims: tensor.dims().to_vec(),
                place: tensor.place().clone(),
                bytes: self.slots.byte_len(tensor.id().slot),
                held_by: tensor.held_by(),
            })
            .collect();
        usage.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        usage
    }

    /// What a model of a namespace keeps.
    pub fn model_memory_usage(&self, namespace: &str, model: &str) -> ModelUsage {
        let mut usage = ModelUsage::default();
        let Some(model) = self.namespace(namespace).and_then(|number| self.model(number, model))
        else {
            return usage;
        };
        for hold in self.holds.of_model(&self.models, model) {
            usage.tensors += usize::from(hold.references > 0);
            let bytes = self.slots.byte_len(hold.slot);
            usage.bytes += bytes;
            // Two holds are enough to know.
            if self.holds.of_slot(&self.slots, hold.slot).nth(1).is_some() {
                usage.shared_bytes += bytes;
            }
        }
        usage
    }

    /// The models of a namespace that hold something or are named by a tensor, in order.
    pub fn models_of(&self, namespace: &str) -> Vec<String> {
        let Some(number) = self.namespace(namespace) else { return Vec::new() };
        let holding = self.models.iter().filter(|&(_, within, _)| within == number);
        let mut models: Vec<&str> = holding.map(|(_, _, model)| model).collect();
        for tensor in self.in_namespace(namespace) {
            models.extend(tensor.producer().into_iter().chain(tensor.consumers()));
        }
        models.sort_unstable();
        models.dedup();
        models.into_iter().map(str::to_owned).collect()
    }

    /// What the models of a namespace might share, and what they keep twice. Hints only: nothing
    /// is shared by this.
    pub fn analyze_sharing_opportunities(&self, namespace: &str) -> SharingOpportunities {
        opportunities::analyze(&self.models_of(namespace), self.in_namespace(namespace))
    }

    /// What the user of a namespace could do to save memory.
    pub fn recommendations(&self, namespace: &str) -> Vec<Recommendation> {
        let opportunities = self.analyze_sharing_opportunities(namespace);
        recommend::recommend(&self.stats(), opportunities, self.in_namespace(namespace))
    }

    fn in_namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = SharedTensor<'a>> {
        let number = self.namespace(namespace);
        let own = move |&slot: &u32| {
            let entry = &self.slots[slot];
            Some(self.slots.namespace(slot)) == number && !entry.flags.has(Flags::ARRIVING)
        };
        self.slots.used().filter(own).map(|slot| SharedTensor::new(self, slot))
    }
}

//! Holds: which model keeps which tensor, and how often it acquired it.
//!
//! Every hold is in two lists, that of its tensor and that of its model, so that all holds of
//! either are found without a search. The first hold of a tensor is found from its slot, further
//! ones through an index: most tensors have one holder, and need no index then.

use crate::index::{Index, NameHasher};
use crate::interned::Interned;
use crate::slots::{NONE, Slots};

/// What one model holds of one tensor.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) slot: u32,
    pub(crate) model: u32,
    /// How often the model acquired the tensor itself.
    pub(crate) references: u64,
    /// How many views of the tensor the model holds.
    pub(crate) views: u32,
    next_of_slot: u32,
    previous_of_slot: u32,
    next_of_model: u32,
    previous_of_model: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Holds {
    holds: Vec<Hold>,
    free: Vec<u32>,
    index: Index,
}

impl Holds {
    pub(crate) fn get(&self, hold: u32) -> &Hold {
        &self.holds[hold as usize]
    }

    pub(crate) fn get_mut(&mut self, hold: u32) -> &mut Hold {
        &mut self.holds[hold as usize]
    }

    /// The hold of a model on a tensor.
    pub(crate) fn find(
        &self,
        hasher: &NameHasher,
        slots: &Slots,
        slot: u32,
        model: u32,
    ) -> Option<u32> {
        let first = slots.first_hold(slot);
        if first == NONE {
            return None;
        }
        if self.get(first).model == model {
            return Some(first);
        }
        if self.get(first).next_of_slot == NONE {
            return None;
        }
        let is_it = |hold: u32| (self.get(hold).slot, self.get(hold).model) == (slot, model);
        self.index.find(hasher.numbers(slot, model), is_it)
    }

    /// Adds a hold that is not there.
    pub(crate) fn add(
        &mut self,
        hasher: &NameHasher,
        slots: &mut Slots,
        models: &mut Interned,
        slot: u32,
        model: u32,
    ) -> u32 {
        let first_of_slot = slots.first_hold(slot);
        let first_of_model = models.first_hold(model);
        let hold = Hold {
            slot,
            model,
            references: 0,
            views: 0,
            next_of_slot: first_of_slot,
            previous_of_slot: NONE,
            next_of_model: first_of_model,
            previous_of_model: NONE,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.holds[number as usize] = hold;
                number
            }
            None => {
                self.holds.push(hold);
                self.holds.len() as u32 - 1
            }
        };
        if first_of_slot != NONE {
            self.get_mut(first_of_slot).previous_of_slot = number;
            let pushed_back = self.get(first_of_slot).model;
            self.index.insert(hasher.numbers(slot, pushed_back), first_of_slot);
        }
        if first_of_model != NONE {
            self.get_mut(first_of_model).previous_of_model = number;
        }
        slots.set_first_hold(slot, number);
        models.set_first_hold(model, number);
        number
    }

    /// Removes a hold from both of its lists.
    pub(crate) fn remove(
        &mut self,
        hasher: &NameHasher,
        slots: &mut Slots,
        models: &mut Interned,
        number: u32,
    ) {
        let &Hold {
            slot,
            model,
            next_of_slot,
            previous_of_slot,
            next_of_model,
            previous_of_model,
            ..
        } = self.get(number);
        if next_of_slot != NONE {
            self.get_mut(next_of_slot).previous_of_slot = previous_of_slot;
        }
        if previous_of_slot == NONE {
            slots.set_first_hold(slot, next_of_slot);
            if next_of_slot != NONE {
                let promoted = self.get(next_of_slot).model;
                self.index.remove(hasher.numbers(slot, promoted), next_of_slot);
            }
        } else {
            self.get_mut(previous_of_slot).next_of_slot = next_of_slot;
            self.index.remove(hasher.numbers(slot, model), number);
        }
        if next_of_model != NONE {
            self.get_mut(next_of_model).previous_of_model = previous_of_model;
        }
        if previous_of_model == NONE {
            models.set_first_hold(model, next_of_model);
        } else {
            self.get_mut(previous_of_model).next_of_model = next_of_model;
        }
        self.free.push(number);
    }

    /// The holds of a tensor, the latest first.
    pub(crate) fn of_slot<'a>(
        &'a self,
        slots: &Slots,
        slot: u32,
    ) -> impl Iterator<Item = &'a Hold> {
        self.walk(slots.first_hold(slot), |hold| hold.next_of_slot)
    }

    /// The holds of a model, the latest first.
    pub(crate) fn of_model<'a>(
        &'a self,
        models: &Interned,
        model: u32,
    ) -> impl Iterator<Item = &'a Hold> {
        self.walk(models.first_hold(model), |hold| hold.next_of_model)
    }

    fn walk(&self, first: u32, next: fn(&Hold) -> u32) -> impl Iterator<Item = &Hold> {
        let at = |number: u32| (number != NONE).then(|| self.get(number));
        std::iter::successors(at(first), move |hold| at(next(hold)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{Content, Record};
    use crate::storage::Place;
    use holdfast_graph::DataType;

    #[test]
    fn every_hold_is_found_whatever_the_order_of_removal() {
        let hasher = NameHasher::default();
        let (mut slots, mut models, mut holds) =
            (Slots::default(), Interned::default(), Holds::default());
        let record = Record::new(DataType::U8, &[1], Place::Host, Content::Awaited);
        let slot = slots.insert(0, "t", hasher.pair("", "t"), record);
        let numbers: Vec<u32> =
            (0..5).map(|n| models.add_use(&hasher, 0, &format!("model {n}"))).collect();
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
            for &model in &numbers {
                holds.add(&hasher, &mut slots, &mut models, slot, model);
            }
            let mut left = numbers.clone();
            for model in order {
                let hold = holds.find(&hasher, &slots, slot, model).unwrap();
                holds.remove(&hasher, &mut slots, &mut models, hold);
                left.retain(|&other| other != model);
                assert_eq!(holds.find(&hasher, &slots, slot, model), None);
                let found = |&model: &u32| holds.find(&hasher, &slots, slot, model).is_some();
                assert!(left.iter().all(found));
                assert_eq!(holds.of_slot(&slots, slot).count(), left.len());
                assert_eq!(holds.of_model(&models, model).count(), 0);
            }
        }
    }
}

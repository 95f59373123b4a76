//! What a mix takes of a device's memory at the worst moment.
//!
//! What the device takes already is measured; a mix adds the weights that are new, sessions, and
//! room for values where more are there at once than ever before. What runs on models that are
//! loaded adds next to nothing.

use serde::{Deserialize, Serialize};

use crate::estimate::TermSource;
use crate::prior::Prior;
use crate::recent::Recent;
use crate::ridge::{Coefficient, Ridge};

/// What growth depends on: new weights, sessions, new tables, values at once, values by session,
/// anything.
pub(crate) const GROWTHS: usize = 6;
/// What each of them is called.
pub(crate) const LABELS: [&str; GROWTHS] = [
    "new weights, packed",
    "sessions",
    "new tables, as far as they are read",
    "room for values",
    "arenas of sessions",
    "other growth",
];
/// What sessions and other growth are counted in.
const MEGABYTE: f64 = 1e6;
/// How much of what was learned stays with each new observation.
pub(crate) const KEEP: f64 = 0.99;
/// A device that takes this much less than it did has been started anew.
const RESTARTED: f64 = 0.8;

/// No memory is larger.
pub(crate) const MOST_BYTES: f64 = 1e18;

/// What of a mix its memory depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemoryOutline {
    /// Bytes before it began, if they were measured.
    pub(crate) start: Option<f64>,
    /// What growth depends on.
    pub(crate) growths: [f64; GROWTHS],
    /// Bytes of the values of all jobs at once.
    pub(crate) values: f64,
}

/// The sums that a mix's outline is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Bytes of new weights but tables.
    pub(crate) new_weight_bytes: f64,
    /// Bytes of new weights that rows are picked from.
    pub(crate) new_table_bytes: f64,
    pub(crate) sessions: usize,
    /// Bytes of the values of all jobs at once, in the stage with most.
    pub(crate) values: f64,
    /// Bytes by which sessions run larger inputs than they did before.
    pub(crate) larger: f64,
}

/// What is known of a device's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    growth: Ridge,
    /// Bytes with nothing loaded, where only totals are measured.
    base: Recent,
    /// Bytes of values that the device has been seen to hold at once.
    held: f64,
    /// Bytes in all when a mix was last measured.
    last: f64,
    mixes: u64,
}

impl Memory {
    pub(crate) fn new(prior: &Prior) -> Memory {
        let coefficient = |prior, spread, high| Coefficient { prior, spread, low: 0.0, high };
        Memory {
            growth: Ridge::new(vec![
                coefficient(prior.packing, 20.0, 5.0),
                coefficient(prior.session_bytes / MEGABYTE, 150.0, 100.0),
                coefficient(prior.table_part, 20.0, 5.0),
                coefficient(0.8, 25.0, 4.0),
                coefficient(0.2, 15.0, 4.0),
                coefficient(0.5, 100.0, 50.0),
            ]),
            base: Recent::default(),
            held: 0.0,
            last: 0.0,
            mixes: 0,
        }
    }

    /// Mixes that were learned from.
    pub(crate) fn mixes(&self) -> u64 {
        self.mixes
    }

    pub(crate) fn outline(&self, start: Option<f64>, needs: &Needs) -> MemoryOutline {
        let start = start.filter(|bytes| (1.0..=MOST_BYTES).contains(bytes));
        let restarted = start.is_some_and(|bytes| bytes < self.last * RESTARTED);
        let held = if restarted || start.is_none() { 0.0 } else { self.held };
        MemoryOutline {
            start,
            growths: [
                needs.new_weight_bytes,
                needs.sessions as f64 * MEGABYTE,
                needs.new_table_bytes,
                (needs.values - held).max(0.0),
                needs.larger,
                MEGABYTE,
            ],
            values: needs.values,
        }
    }

    /// Bytes at the start, and what each growth adds.
    pub(crate) fn parts(&self, outline: &MemoryOutline, prior: &Prior) -> (f64, [f64; GROWTHS]) {
        let start = outline.start.or(self.base.centre()).unwrap_or(prior.base_bytes);
        let mut parts = outline.growths;
        for (part, each) in parts.iter_mut().zip(self.growth.solution()) {
            *part *= each;
        }
        (start, parts)
    }

    pub(crate) fn bytes(&self, outline: &MemoryOutline, prior: &Prior) -> f64 {
        let (start, parts) = self.parts(outline, prior);
        start + parts.iter().sum::<f64>()
    }

    /// How sure that is.
    pub(crate) fn source(&self, outline: &MemoryOutline) -> TermSource {
        match (outline.start, outline.growths[1] > 0.0) {
            (Some(_), false) => TermSource::Measured,
            (Some(_), true) if self.growth.weight() >= 2.0 => TermSource::Interpolated,
            (Some(_), true) => TermSource::Fitted,
            (None, _) if self.base.count() > 0 => TermSource::Fitted,
            (None, _) => TermSource::Prior,
        }
    }

    /// Learns from what a mix took.
    pub(crate) fn observe(&mut self, outline: &MemoryOutline, measured: f64) {
        self.learn(outline, measured, KEEP);
        self.held = match measured < self.last * RESTARTED {
            true => outline.values,
            false => self.held.max(outline.values),
        };
        self.last = measured;
    }

    /// Learns what growth takes.
    pub(crate) fn learn(&mut self, outline: &MemoryOutline, measured: f64, keep: f64) {
        let inputs = outline.growths.map(|growth| growth / measured);
        match outline.start {
            Some(start) => {
                let grown = (measured - start) / measured;
                let surprise = (grown - self.growth.predict(&inputs)).abs();
                let weight = 0.1 / surprise.max(0.1);
                self.growth.learn(&inputs, grown, weight, keep);
            }
            None => {
                let grown: f64 = self.growth.predict(&outline.growths);
                self.base.push((measured - grown).max(0.0));
            }
        }
        self.mixes += 1;
    }

    /// Learns from a load by itself.
    pub(crate) fn observe_load(&mut self, new_weight_bytes: f64, added: f64) {
        if !(0.0..=MOST_BYTES).contains(&added) {
            return;
        }
        // Beside a whole process, as in a mix, a load is a small part.
        let scale = (3.0 * added).max(60.0 * MEGABYTE);
        let mut inputs = [0.0; GROWTHS];
        inputs[..2].copy_from_slice(&[new_weight_bytes / scale, MEGABYTE / scale]);
        self.growth.learn(&inputs, added / scale, 1.0, KEEP);
    }

    /// Forgets what growth takes.
    pub(crate) fn start_over(&mut self) {
        self.growth.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceProfile;

    /// Where the room for values is among the growths.
    const ROOM: usize = 3;

    fn prior() -> Prior {
        Prior::of(&DeviceProfile::made_up("cpu"))
    }

    fn needs(new: f64, sessions: usize, values: f64) -> Needs {
        Needs { new_weight_bytes: new, new_table_bytes: 0.0, sessions, values, larger: values }
    }

    #[test]
    fn what_runs_on_loaded_models_adds_nearly_nothing() {
        let memory = Memory::new(&prior());
        let outline = memory.outline(Some(400e6), &needs(0.0, 0, 0.0));
        let bytes = memory.bytes(&outline, &prior());
        assert!((400e6..404e6).contains(&bytes), "{bytes}");
        assert_eq!(memory.source(&outline), TermSource::Measured);
    }

    #[test]
    fn learns_how_weights_are_packed() {
        let mut memory = Memory::new(&prior());
        for step in 1..40 {
            let new = f64::from(step % 5 + 1) * 2e7;
            let outline = memory.outline(Some(300e6), &needs(new, 2, 0.0));
            memory.observe(&outline, 300e6 + 2.0 * new + 2.0 * 1.5e6);
        }
        let outline = memory.outline(Some(300e6), &needs(9e7, 3, 0.0));
        let off = memory.bytes(&outline, &prior()) / (300e6 + 1.8e8 + 4.5e6) - 1.0;
        assert!(off.abs() < 0.01, "{off}");
    }

    #[test]
    fn learns_how_much_of_tables_is_read() {
        let mut memory = Memory::new(&prior());
        let with_table = |bytes: f64| Needs { new_table_bytes: bytes, ..needs(5e7, 1, 0.0) };
        for step in 1..40 {
            let table = f64::from(step % 5 + 1) * 2e7;
            let outline = memory.outline(Some(300e6), &with_table(table));
            memory.observe(&outline, 300e6 + 1.3 * 5e7 + 0.4 * table + 1.5e6);
        }
        let grown =
            |table: f64| memory.bytes(&memory.outline(Some(300e6), &with_table(table)), &prior());
        let part = (grown(1e8) - grown(0.0)) / 1e8;
        assert!((part - 0.4).abs() < 0.05, "{part}");
    }

    #[test]
    fn values_that_were_held_before_need_no_room_until_a_restart() {
        let mut memory = Memory::new(&prior());
        let first = memory.outline(Some(300e6), &needs(0.0, 0, 50e6));
        assert_eq!(first.growths[ROOM], 50e6);
        memory.observe(&first, 340e6);
        assert_eq!(memory.outline(Some(340e6), &needs(0.0, 0, 50e6)).growths[ROOM], 0.0);
        assert_eq!(memory.outline(Some(100e6), &needs(0.0, 0, 50e6)).growths[ROOM], 50e6);
    }

    #[test]
    fn without_a_measurement_it_starts_from_a_base_that_is_learned() {
        let mut memory = Memory::new(&prior());
        let outline = memory.outline(None, &needs(1e8, 1, 0.0));
        assert_eq!(memory.source(&outline), TermSource::Prior);
        (0..9).for_each(|_| memory.observe(&outline, 900e6));
        let off = memory.bytes(&outline, &prior()) / 900e6 - 1.0;
        assert!(off.abs() < 0.01, "{off}");
        assert_eq!(memory.source(&outline), TermSource::Fitted);
    }

    #[test]
    fn a_load_by_itself_teaches_and_nonsense_does_not() {
        let mut memory = Memory::new(&prior());
        memory.observe_load(1e8, f64::NAN);
        memory.observe_load(1e8, -5.0);
        assert_eq!(memory, Memory::new(&prior()));
        (0..20).for_each(|_| memory.observe_load(1e8, 2.5e8));
        assert!(memory.growth.solution()[0] > 1.8, "{:?}", memory.growth.solution());
    }
}

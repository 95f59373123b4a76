//! When a model should be on one more device: a single request hardly ever waits for so long that a load
//! would have been quicker, but many do so together. Once they have waited for as long as a load takes
//! while a device without the model was free, the load is overdue. So what is waited and what is loaded
//! never differ by much, whatever comes next.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_devices::SegmentId;
use tokio::time::Instant;

/// What was waited before is forgotten when nobody has waited for so long: a second copy takes memory,
/// and is for those who keep on asking.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// How long requests have waited that a load would have spared them, by route.
#[derive(Default)]
pub(crate) struct Overdue(HashMap<SegmentId, Waited>);

struct Waited {
    all: Duration,
    last: Instant,
}

impl Overdue {
    /// A request has waited although there was somewhere to load its model.
    pub(crate) fn add(&mut self, route: SegmentId, waited: Duration, now: Instant) {
        self.0.retain(|_, waited| now - waited.last < FORGOTTEN);
        if waited.is_zero() {
            return;
        }
        let entry = self.0.entry(route).or_insert(Waited { all: Duration::ZERO, last: now });
        entry.all += waited;
        entry.last = now;
    }

    /// What a load of so long is taken for.
    pub(crate) fn left_of(&self, load: Duration, route: &SegmentId, now: Instant) -> Duration {
        let waited = self.0.get(route).filter(|waited| now - waited.last < FORGOTTEN);
        load.saturating_sub(waited.map_or(Duration::ZERO, |waited| waited.all))
    }

    /// It is loaded now.
    pub(crate) fn settle(&mut self, route: &SegmentId) {
        self.0.remove(route);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_graph::Digest;

    use super::*;

    #[test]
    fn what_was_waited_makes_a_load_cheaper_until_it_is_loaded_or_forgotten() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let route = SegmentId(Digest::of(b"one"));
        let other = SegmentId(Digest::of(b"two"));
        let mut overdue = Overdue::default();
        overdue.add(route, second, now);
        overdue.add(route, second, now + second);
        assert_eq!(overdue.left_of(5 * second, &route, now + second), 3 * second);
        assert_eq!(overdue.left_of(second, &route, now + second), Duration::ZERO);
        assert_eq!(overdue.left_of(5 * second, &other, now + second), 5 * second);
        assert_eq!(overdue.left_of(5 * second, &route, now + second + FORGOTTEN), 5 * second);
        overdue.settle(&route);
        assert_eq!(overdue.left_of(5 * second, &route, now + second), 5 * second);
    }
}

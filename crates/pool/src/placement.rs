//! Which device takes what waits: a pure function of a snapshot.
//!
//! One rule decides about running and loading alike: a device takes work of a group if it is
//! expected to be done with it no later than the others would be with all that waits. So a slow
//! device helps once the queue is long, a model is loaded a second time only when that pays, and
//! a lone request goes where it is answered soonest.

use std::time::Duration;

/// A device, as far as one group is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Whether the model is there.
    pub(crate) load: Load,
    /// How long one request takes there, where that was measured.
    pub(crate) run: Option<Duration>,
    /// Whether it can take work right now.
    pub(crate) free: bool,
    /// In how long it takes work again, if it is left alone for a while; `None` if nobody knows,
    /// because it cannot be heard.
    pub(crate) ready_in: Option<Duration>,
    /// What runs or waits there already.
    pub(crate) in_flight: usize,
    /// How long the oldest of that has been there.
    pub(crate) oldest: Duration,
    /// How many it really runs at once.
    pub(crate) parallel: usize,
    /// How much of what it could do it offers, above 0 and up to 1. What it takes is the dearer.
    pub(crate) share: f64,
    /// Whether it is what such a model usually runs best on.
    pub(crate) favoured: bool,
    /// Whether it has just failed under the request that is next.
    pub(crate) avoided: bool,
}

/// Whether a model is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// It is.
    Ready,
    /// It will be, in so long.
    Coming(Duration),
    /// It is not; to load it would take so long.
    Needed(Duration),
    /// There is no room until something that runs there has finished.
    NoRoom,
    /// It cannot be there: it is larger than what the device may hold, or the device has said no.
    Refused,
}

/// What to do for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The device of this position runs what is next.
    Run(usize),
    /// The device of this position loads the model.
    Load(usize),
    /// Nothing now: others will be done sooner, or nobody is free.
    Wait,
    /// Nobody can ever take it.
    Refuse,
}

/// Assumed of a run before anything was measured.
const UNMEASURED: Duration = Duration::from_millis(50);

/// The least that counts: what offers next to nothing is not worse than that.
pub(crate) const LEAST_SHARE: f64 = 0.01;

/// Decides for a group in which so many requests wait.
pub(crate) fn place(waiting: usize, devices: &[View]) -> Decision {
    if devices.iter().all(|device| device.load == Load::Refused) {
        return Decision::Refuse;
    }
    // Nobody but those that failed under it: then one of them it is.
    let avoid = devices.iter().any(|device| !device.avoided && device.load != Load::Refused);
    let counts = |device: &View| !(avoid && device.avoided);
    let assumed = devices.iter().filter_map(|device| device.run).min().unwrap_or(UNMEASURED);
    // A device that wants to do a half of the work is taken for half as fast.
    let dearer = |device: &View| 1.0 / device.share.clamp(LEAST_SHARE, 1.0);
    let run = |device: &View| device.run.unwrap_or(assumed).mul_f64(dearer(device));
    let cost = |device: &View| match device.load {
        Load::Ready => Some(run(device)),
        Load::Needed(load) => Some(load + run(device)),
        Load::Coming(_) | Load::NoRoom | Load::Refused => None,
    };
    let candidates = devices.iter().enumerate().filter(|(_, device)| device.free && counts(device));
    let candidates = candidates.filter_map(|(index, device)| Some((index, device, cost(device)?)));
    let order = |(index, device, cost): &(usize, &View, Duration)| {
        (*cost, !device.favoured, device.in_flight, *index)
    };
    let Some((best, device, cost)) = candidates.min_by_key(order) else { return Decision::Wait };

    let others =
        devices.iter().enumerate().filter(|(index, device)| *index != best && counts(device));
    let others: Vec<(Duration, Duration, usize)> = others
        .filter_map(|(_, device)| {
            let ready_in = device.ready_in?;
            let coming = match device.load {
                Load::Ready => Duration::ZERO,
                Load::Coming(left) => left,
                Load::Needed(_) | Load::NoRoom | Load::Refused => return None,
            };
            let parallel = device.parallel.max(1);
            let busy = run(device).mul_f64(device.in_flight as f64 / parallel as f64);
            // What takes longer than it should may hang: the longer it does, the less is to be
            // expected of it.
            let is_full = device.in_flight >= parallel;
            let busy = if is_full { busy.max(device.oldest) } else { busy };
            Some(((coming + busy).max(ready_in), run(device), parallel))
        })
        .collect();
    let elsewhere = drained(waiting, &others);
    match device.load {
        Load::Ready if elsewhere.is_none_or(|elsewhere| cost <= elsewhere) => Decision::Run(best),
        // A load takes memory too, so it has to be better, not just as good.
        Load::Needed(_) if elsewhere.is_none_or(|elsewhere| cost < elsewhere) => {
            Decision::Load(best)
        }
        _ => Decision::Wait,
    }
}

/// When these would be done with all that waits: each starts after a while, and takes so long for
/// one of so many at once.
fn drained(waiting: usize, devices: &[(Duration, Duration, usize)]) -> Option<Duration> {
    let soonest = devices.iter().map(|(start, run, _)| *start + *run).min()?;
    let start = devices.iter().map(|(start, _, _)| *start).min()?;
    let per_second: f64 = devices
        .iter()
        .map(|(_, run, parallel)| *parallel as f64 / run.as_secs_f64().max(1e-6))
        .sum();
    let all = start + Duration::from_secs_f64((waiting as f64 / per_second).min(1e6));
    Some(soonest.max(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A free device that runs one at a time and was not measured.
    fn device(load: Load) -> View {
        View {
            load,
            run: None,
            free: true,
            ready_in: Some(Duration::ZERO),
            in_flight: 0,
            oldest: Duration::ZERO,
            parallel: 1,
            share: 1.0,
            favoured: false,
            avoided: false,
        }
    }

    fn ready(run: u64) -> View {
        View { run: Some(ms(run)), ..device(Load::Ready) }
    }

    fn busy(run: u64, in_flight: usize) -> View {
        View { free: false, in_flight, ..ready(run) }
    }

    fn unloaded(load: u64) -> View {
        device(Load::Needed(ms(load)))
    }

    #[test]
    fn decides_by_when_it_would_be_done() {
        let coming = |left| device(Load::Coming(ms(left)));
        let avoided = |view: View| View { avoided: true, ..view };
        let favoured = |view: View| View { favoured: true, ..view };
        let sparing = |view: View| View { share: 0.25, ..view };
        let away = |view: View| View { ready_in: None, free: false, ..view };
        let paused = |left, view: View| View { ready_in: Some(ms(left)), free: false, ..view };
        let hung = |age, view: View| View { oldest: ms(age), ..view };
        let cases: &[(&str, usize, &[View], Decision)] = &[
            ("where it is loaded", 1, &[unloaded(100), ready(20)], Decision::Run(1)),
            ("nobody has it: one loads", 1, &[unloaded(100)], Decision::Load(0)),
            ("the quickest loads", 1, &[unloaded(100), unloaded(50)], Decision::Load(1)),
            ("one load is shared", 10, &[coming(80)], Decision::Wait),
            ("a second load that is just as good", 1, &[coming(80), unloaded(80)], Decision::Wait),
            ("a second load that does not pay", 3, &[coming(80), unloaded(500)], Decision::Wait),
            ("a second load that pays", 30, &[coming(80), unloaded(500)], Decision::Load(1)),
            ("busy, and loading does not pay", 4, &[busy(20, 2), unloaded(500)], Decision::Wait),
            ("busy, and loading pays", 40, &[busy(20, 2), unloaded(500)], Decision::Load(1)),
            ("it cannot be heard", 1, &[away(ready(20)), unloaded(500)], Decision::Load(1)),
            ("nor can the one that loads", 1, &[away(coming(9)), unloaded(500)], Decision::Load(1)),
            ("nor can any", 1, &[away(ready(20))], Decision::Wait),
            ("a short pause", 1, &[paused(100, ready(20)), unloaded(500)], Decision::Wait),
            ("a long pause", 1, &[paused(15_000, ready(20)), unloaded(500)], Decision::Load(1)),
            ("it may hang", 1, &[hung(501, busy(20, 1)), unloaded(500)], Decision::Load(1)),
            ("not yet", 1, &[hung(500, busy(20, 1)), unloaded(500)], Decision::Wait),
            (
                "one that hangs leaves room for another",
                1,
                &[hung(900, View { parallel: 2, free: true, ..busy(20, 1) }), unloaded(500)],
                Decision::Run(0),
            ),
            ("the faster of two", 1, &[ready(30), ready(20)], Decision::Run(1)),
            ("the slow one waits for the fast one", 1, &[ready(200), busy(20, 2)], Decision::Wait),
            ("a long queue needs the slow one", 12, &[ready(200), busy(20, 2)], Decision::Run(0)),
            ("the less busy of equals", 1, &[busy(20, 1), ready(20)], Decision::Run(1)),
            ("the one that offers all", 1, &[sparing(ready(20)), ready(30)], Decision::Run(1)),
            ("one that spares itself waits", 2, &[sparing(ready(20)), busy(20, 1)], Decision::Wait),
            ("until much waits", 9, &[sparing(ready(20)), busy(20, 1)], Decision::Run(0)),
            ("it does not load for it", 9, &[sparing(unloaded(90)), ready(20)], Decision::Run(1)),
            ("and helps if it is alone", 1, &[sparing(ready(20))], Decision::Run(0)),
            ("nobody is free", 5, &[busy(20, 2), busy(20, 2)], Decision::Wait),
            ("no device at all is refused by nobody", 1, &[device(Load::NoRoom)], Decision::Wait),
            ("refused by all", 1, &[device(Load::Refused)], Decision::Refuse),
            ("refused by one", 1, &[device(Load::Refused), unloaded(9)], Decision::Load(1)),
            (
                "what was not measured is tried",
                1,
                &[ready(20), device(Load::Ready)],
                Decision::Run(0),
            ),
            ("elsewhere after a failure", 1, &[avoided(ready(20)), ready(500)], Decision::Run(1)),
            (
                "even if that means to load",
                1,
                &[avoided(ready(20)), unloaded(900)],
                Decision::Load(1),
            ),
            ("there again if there is nothing else", 1, &[avoided(ready(20))], Decision::Run(0)),
            (
                "the guide breaks a tie",
                1,
                &[unloaded(50), favoured(unloaded(50))],
                Decision::Load(1),
            ),
            ("but not a measurement", 1, &[ready(20), favoured(ready(21))], Decision::Run(0)),
        ];
        for (what, waiting, devices, expected) in cases {
            assert_eq!(place(*waiting, devices), *expected, "{what}");
        }
    }

    #[test]
    fn somebody_free_takes_it_unless_somebody_busy_is_better() {
        // However the times are, the free devices never leave a request to each other.
        let times = [1, 7, 20, 300];
        for a in times {
            for b in times {
                for waiting in [1, 2, 100] {
                    for load in [0, 10, 1000] {
                        let devices = [ready(a), View { run: Some(ms(b)), ..unloaded(load) }];
                        let decision = place(waiting, &devices);
                        assert_ne!(decision, Decision::Wait, "{a} {b} {waiting} {load}");
                    }
                }
            }
        }
    }
}

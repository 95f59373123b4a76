//! How many browsers there are to be: pure functions of a picture of the fleet.

use std::time::Duration;

use holdfast_wire::Backend;

use crate::carry::Patience;
use crate::scheduler::crew::Demand;

/// Everything that the decision depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) min: usize,
    pub(super) max: usize,
    /// How long a browser may have nothing to do.
    pub(super) idle_limit: Duration,
    /// What can be started, the preferred one first.
    pub(super) sources: Vec<SourceView>,
    pub(super) browsers: Vec<BrowserView>,
    /// What waits.
    pub(super) demands: Vec<Demand>,
    /// Backends that somebody waits for because no lane is there.
    pub(super) needs: Vec<Backend>,
}

/// Something that can be started.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceView {
    /// Why it is left alone for a while.
    pub(super) failing: Option<String>,
    /// Backends that it does not have, and why.
    pub(super) lacks: Vec<(Backend, String)>,
    /// Backends that are no accelerators there, and why.
    pub(super) plain: Vec<(Backend, String)>,
}

/// A browser that was started.
#[derive(Clone, Debug)]
pub(super) struct BrowserView {
    pub(super) id: u64,
    /// The source, by position.
    pub(super) source: usize,
    pub(super) stage: Stage,
    pub(super) lacks: Vec<(Backend, String)>,
    /// How long it has had nothing to do; `None` if it has.
    pub(super) idle: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not known yet what it will do for those who wait.
    Coming,
    /// It takes work.
    Serving,
    /// It is on its way out.
    Leaving,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Starts what is at this position.
    Start(usize, String),
    /// Closes the browser of this id.
    Close(u64, String),
    Nothing,
}

/// How long requests wait before another browser is started for them.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// What is to be done next. Asked again after it was done.
pub(super) fn decide(picture: &Picture) -> Decision {
    let staying = || picture.staying();
    let count = staying().count();
    let has_room = picture.browsers.len() < picture.limit();
    // Before anything else is started: what is wanted now also counts towards the least.
    for &backend in &picture.needs {
        let Some(source) = picture.source(Some(backend)) else { continue };
        let name = backend.name();
        if staying().any(|browser| browser.may_have(backend)) {
            continue;
        }
        if has_room {
            return Decision::Start(source, format!("{name} is wanted"));
        }
        if let Some(id) = picture.spare(backend) {
            return Decision::Close(id, format!("{name} is wanted, which it does not have"));
        }
    }
    if count < picture.min
        && has_room
        && let Some(source) = picture.source(None)
    {
        let why = format!("at least {} are to be there", picture.min);
        return Decision::Start(source, why);
    }
    // One after the other: what the last one does for those who wait has to show first.
    let settled = staying().all(|browser| browser.stage == Stage::Serving);
    for demand in &picture.demands {
        // What fits into the slots that are there waits for a model and not for a browser.
        let is_late = demand.waiting > demand.slots && demand.oldest >= PATIENCE;
        if is_late
            && settled
            && has_room
            && let Some(source) = picture.source(Some(demand.backend))
        {
            let name = demand.backend.name();
            return Decision::Start(source, format!("{} requests wait for {name}", demand.waiting));
        }
    }
    if count > picture.min && picture.needs.is_empty() {
        let idle = staying().filter(|browser| browser.stage == Stage::Serving);
        let idle = idle.filter_map(|browser| Some((browser.idle?, browser.id)));
        if let Some((idle, id)) = idle.max().filter(|(idle, _)| *idle >= picture.idle_limit) {
            let why = format!("it had nothing to do for {} s", idle.as_secs());
            return Decision::Close(id, why);
        }
    }
    Decision::Nothing
}

/// Why nobody will have a lane on a backend; `None` if that is still open.
pub(super) fn refusal(picture: &Picture, backend: Backend, patience: Patience) -> Option<String> {
    if picture.staying().any(|browser| browser.may_have(backend)) {
        return None;
    }
    if picture.source(Some(backend)).is_some() {
        let is_open = !picture.is_full() || picture.spare(backend).is_some();
        return (!is_open).then(|| {
            let (most, name) = (picture.limit(), backend.name());
            format!("{most} browsers run, which is the limit, and none has {name}")
        });
    }
    let mut paused = picture.sources.iter().filter(|source| source.failing.is_some());
    // The pause ends, and then it is started again.
    if patience == Patience::Bereft && paused.any(|source| !lacks(&source.lacks, backend)) {
        return None;
    }
    let failing = picture.sources.iter().find_map(|source| source.failing.clone());
    let known = picture.sources.iter().map(|source| &source.lacks);
    let known = known.chain(picture.browsers.iter().map(|browser| &browser.lacks));
    let lacking = known.flatten().find(|(lacked, _)| *lacked == backend);
    let lacking = lacking.map(|(_, reason)| reason.clone());
    let nothing = || Some(format!("there is no browser to start for {}", backend.name()));
    failing.or(lacking).or_else(nothing)
}

/// Why no browser that is there, or would be started, has an accelerator on a backend; `None` if that
/// is not known.
pub(super) fn no_accelerator(picture: &Picture, backend: Backend) -> Option<String> {
    let having = picture.staying().filter(|browser| browser.may_have(backend));
    let sources = having.map(|browser| browser.source).chain(picture.source(Some(backend)));
    let mut reasons = sources.map(|source| reason(&picture.sources[source].plain, backend));
    let first = reasons.next()??;
    reasons.all(|reason| reason.is_some()).then(|| first.to_owned())
}

impl Picture {
    /// Browsers that may be there at once.
    fn limit(&self) -> usize {
        self.max.max(self.min)
    }

    /// Those that are not on their way out.
    fn staying(&self) -> impl Iterator<Item = &BrowserView> {
        self.browsers.iter().filter(|browser| browser.stage != Stage::Leaving)
    }

    /// Whether there is no place for another one, and none is about to be free.
    fn is_full(&self) -> bool {
        self.staying().count() >= self.limit()
    }

    /// What to start for a backend, or for any.
    fn source(&self, backend: Option<Backend>) -> Option<usize> {
        self.sources.iter().position(|source| {
            source.failing.is_none()
                && !backend.is_some_and(|backend| lacks(&source.lacks, backend))
        })
    }

    /// The browser that goes for one with a backend that none has: the one that has had nothing to
    /// do for the longest time, and for which nobody waits.
    fn spare(&self, backend: Backend) -> Option<u64> {
        if !self.is_full() {
            return None;
        }
        let wanted = || self.needs.iter().copied().chain(self.demands.iter().map(|d| d.backend));
        let is_spare = |browser: &&BrowserView| {
            !browser.may_have(backend) && !wanted().any(|wanted| browser.may_have(wanted))
        };
        let spare = self.staying().filter(is_spare);
        spare.filter_map(|browser| Some((browser.idle?, browser.id))).max().map(|(_, id)| id)
    }
}

impl BrowserView {
    fn may_have(&self, backend: Backend) -> bool {
        !lacks(&self.lacks, backend)
    }
}

fn lacks(lacks: &[(Backend, String)], backend: Backend) -> bool {
    reason(lacks, backend).is_some()
}

fn reason(reasons: &[(Backend, String)], backend: Backend) -> Option<&str> {
    reasons.iter().find(|(about, _)| *about == backend).map(|(_, reason)| reason.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(failing: bool, lacks: &[Backend]) -> SourceView {
        let reason = |backend: &Backend| (*backend, format!("no {}", backend.name()));
        SourceView {
            failing: failing.then(|| "it is broken".to_owned()),
            lacks: lacks.iter().map(reason).collect(),
            plain: Vec::new(),
        }
    }

    fn browser(id: u64, stage: Stage, idle: Option<u64>) -> BrowserView {
        let idle = idle.map(Duration::from_secs);
        BrowserView { id, source: 0, stage, lacks: Vec::new(), idle }
    }

    /// One that has no WebNN.
    fn without_webnn(id: u64, stage: Stage, idle: Option<u64>) -> BrowserView {
        BrowserView { lacks: source(false, &[Backend::Webnn]).lacks, ..browser(id, stage, idle) }
    }

    fn demand(waiting: usize, oldest: Duration, slots: usize) -> Demand {
        Demand { backend: Backend::Wasm, waiting, oldest, slots }
    }

    /// Between no and two browsers, one thing to start, nothing there.
    fn picture() -> Picture {
        let idle_limit = Duration::from_secs(60);
        let sources = vec![source(false, &[])];
        Picture { max: 2, idle_limit, sources, ..Picture::default() }
    }

    #[test]
    fn decides_how_many_there_are() {
        use Stage::{Coming, Leaving, Serving};
        let with = |browsers: Vec<BrowserView>, change: &dyn Fn(&mut Picture)| {
            let mut picture = Picture { browsers, ..picture() };
            change(&mut picture);
            picture
        };
        let late = demand(9, PATIENCE, 2);
        let wasm = |p: &mut Picture| p.needs = vec![Backend::Wasm];
        let waits = |p: &mut Picture| p.demands = vec![late];
        let busy = browser(1, Serving, None);
        let idle = browser(2, Serving, Some(60));
        let cases: &[(&str, Picture, &str)] = &[
            ("nothing to do", picture(), "nothing"),
            ("the least there are to be", with(vec![], &|p| p.min = 1), "start 0"),
            ("they are there", with(vec![busy.clone()], &|p| p.min = 1), "nothing"),
            ("one is leaving", with(vec![browser(1, Leaving, None)], &|p| p.min = 1), "start 0"),
            (
                "but there is no room yet",
                with(vec![browser(1, Leaving, None)], &|p| (p.min, p.max) = (1, 1)),
                "nothing",
            ),
            ("wanted", with(vec![], &wasm), "start 0"),
            ("wanted, and one is coming", with(vec![browser(1, Coming, None)], &wasm), "nothing"),
            (
                "wanted, and the one that is there lacks it",
                with(vec![busy.clone()], &|p| {
                    wasm(p);
                    p.browsers[0].lacks = source(false, &[Backend::Wasm]).lacks;
                }),
                "start 0",
            ),
            ("requests wait", with(vec![busy.clone()], &waits), "start 0"),
            (
                "not for long",
                with(vec![busy.clone()], &|p| p.demands = vec![demand(9, PATIENCE / 2, 2)]),
                "nothing",
            ),
            (
                "as many as there are slots",
                with(vec![busy.clone()], &|p| p.demands = vec![demand(2, PATIENCE * 9, 2)]),
                "nothing",
            ),
            (
                "the last one has to show first",
                with(vec![browser(1, Coming, None)], &waits),
                "nothing",
            ),
            ("the most are there", with(vec![busy.clone(), busy.clone()], &waits), "nothing"),
            (
                "it fails",
                with(vec![], &|p| (p.min, p.sources) = (1, vec![source(true, &[])])),
                "nothing",
            ),
            (
                "the next one does not",
                with(vec![], &|p| {
                    p.min = 1;
                    p.sources = vec![source(true, &[]), source(false, &[])];
                }),
                "start 1",
            ),
            (
                "the next one has what is wanted",
                with(vec![], &|p| {
                    wasm(p);
                    p.sources = vec![source(false, &[Backend::Wasm]), source(false, &[])];
                }),
                "start 1",
            ),
            ("idle", with(vec![busy.clone(), idle.clone()], &|_| ()), "close 2"),
            ("not for long", with(vec![browser(1, Serving, Some(59))], &|_| ()), "nothing"),
            ("idle, and has to stay", with(vec![idle.clone()], &|p| p.min = 1), "nothing"),
            ("idle, and somebody wants one", with(vec![idle.clone()], &wasm), "nothing"),
            (
                "the one that was idle longest",
                with(vec![browser(1, Serving, Some(90)), idle.clone()], &|_| ()),
                "close 1",
            ),
        ];
        for (what, picture, expected) in cases {
            assert_eq!(decision(picture), *expected, "{what}");
        }
    }

    fn decision(picture: &Picture) -> String {
        match decide(picture) {
            Decision::Start(source, _) => format!("start {source}"),
            Decision::Close(id, _) => format!("close {id}"),
            Decision::Nothing => "nothing".to_owned(),
        }
    }

    /// Two places, taken by these; somebody wants WebNN, which only the second source may have.
    fn wants_webnn(browsers: Vec<BrowserView>) -> Picture {
        let sources = vec![source(false, &[Backend::Webnn]), source(false, &[])];
        Picture { browsers, sources, needs: vec![Backend::Webnn], ..picture() }
    }

    #[test]
    fn an_idle_browser_makes_room_for_one_that_has_what_is_wanted() {
        use Stage::{Coming, Leaving, Serving};
        let busy = without_webnn(1, Serving, None);
        let idle = without_webnn(2, Serving, Some(0));
        let of = |browsers: &[&BrowserView]| {
            wants_webnn(browsers.iter().map(|browser| (*browser).clone()).collect())
        };
        let leaving = without_webnn(2, Leaving, Some(0));
        let just_joined = without_webnn(2, Coming, Some(0));
        let longer = without_webnn(3, Serving, Some(9));
        let cases = [
            ("the idle one goes", of(&[&busy, &idle]), "close 2"),
            ("the one that was idle longest", of(&[&idle, &longer]), "close 3"),
            ("one that has just joined", of(&[&busy, &just_joined]), "close 2"),
            ("it has to be one of two", Picture { min: 2, ..of(&[&busy, &idle]) }, "close 2"),
            ("one is enough", of(&[&longer, &leaving]), "nothing"),
            ("now there is room", of(&[&busy]), "start 1"),
            ("also of the least", Picture { min: 2, ..of(&[&busy]) }, "start 1"),
            ("never one with work", of(&[&busy, &without_webnn(2, Serving, None)]), "nothing"),
            ("one may have it", of(&[&idle, &browser(3, Coming, Some(0))]), "nothing"),
            (
                "nothing else has it",
                Picture { sources: vec![source(false, &[Backend::Webnn])], ..of(&[&busy, &idle]) },
                "nothing",
            ),
            (
                "what has it fails",
                Picture { sources: vec![source(true, &[])], ..of(&[&busy, &idle]) },
                "nothing",
            ),
            (
                "somebody waits for what it has",
                Picture { needs: vec![Backend::Wasm, Backend::Webnn], ..of(&[&busy, &idle]) },
                "nothing",
            ),
            (
                "requests wait for what it has",
                Picture { demands: vec![demand(1, Duration::ZERO, 2)], ..of(&[&busy, &idle]) },
                "nothing",
            ),
            ("nobody wants it", Picture { needs: vec![], ..of(&[&busy, &idle]) }, "nothing"),
        ];
        for (what, picture, expected) in cases {
            assert_eq!(decision(&picture), expected, "{what}");
        }
    }

    #[test]
    fn whoever_waits_for_a_swap_is_not_told_that_it_is_in_vain() {
        use Stage::{Leaving, Serving};
        let refusal = |second| {
            let first = without_webnn(1, Serving, None);
            refusal(&wants_webnn(vec![first, second]), Backend::Webnn, Patience::Fresh)
        };
        assert_eq!(refusal(without_webnn(2, Serving, Some(0))), None, "it will go");
        assert_eq!(refusal(without_webnn(2, Leaving, None)), None, "it goes");
        let full = "2 browsers run, which is the limit, and none has webnn";
        assert_eq!(refusal(without_webnn(2, Serving, None)).as_deref(), Some(full));
    }

    #[test]
    fn whoever_waits_in_vain_is_told_why() {
        use Stage::{Coming, Leaving, Serving};
        let lacking = source(false, &[Backend::Wasm]).lacks;
        let without = |id| BrowserView { lacks: lacking.clone(), ..browser(id, Serving, None) };
        let mut cases: Vec<(&str, Picture, Option<&str>)> = Vec::new();
        cases.push(("one can be started", picture(), None));
        let browsers = vec![browser(1, Coming, None)];
        cases.push(("one is coming", Picture { browsers, ..picture() }, None));
        let sources = vec![source(true, &[])];
        cases.push(("it fails", Picture { sources, ..picture() }, Some("it is broken")));
        let sources = vec![source(true, &[]), source(false, &[])];
        cases.push(("the next one does not", Picture { sources, ..picture() }, None));
        let sources = vec![source(false, &[Backend::Wasm])];
        cases.push(("it lacks it", Picture { sources, ..picture() }, Some("no wasm")));
        let (browsers, sources) =
            (vec![without(1), without(2)], vec![source(false, &[Backend::Wasm])]);
        let all_lack = Picture { browsers, sources, ..picture() };
        cases.push(("all lack it", all_lack, Some("no wasm")));
        let browsers = vec![browser(1, Leaving, None), browser(2, Leaving, None)];
        cases.push(("there will be room", Picture { browsers, ..picture() }, None));
        for (what, picture, expected) in cases {
            let told = refusal(&picture, Backend::Wasm, Patience::Fresh);
            assert_eq!(told.as_deref(), expected, "{what}");
        }
    }

    #[test]
    fn an_accelerator_is_only_looked_for_where_none_was_found_yet() {
        use Stage::{Leaving, Serving};
        let plain = || {
            let plain = vec![(Backend::Webgpu, "a processor".to_owned())];
            SourceView { plain, ..source(false, &[]) }
        };
        let lacking = || source(false, &[Backend::Webgpu]);
        let with = |sources: Vec<SourceView>, browsers: Vec<BrowserView>| {
            let picture = Picture { sources, browsers, ..picture() };
            no_accelerator(&picture, Backend::Webgpu).is_some()
        };
        let of_second = |stage| BrowserView { source: 1, ..browser(1, stage, None) };
        assert!(with(vec![plain()], vec![]));
        assert!(with(vec![plain()], vec![browser(1, Serving, None)]));
        assert!(with(vec![lacking(), plain()], vec![]));
        assert!(with(vec![plain(), source(false, &[])], vec![of_second(Leaving)]));
        assert!(!with(vec![plain(), source(false, &[])], vec![of_second(Serving)]));
        assert!(!with(vec![source(false, &[])], vec![]), "nobody has looked");
        assert!(!with(vec![lacking()], vec![]), "that there is none is another answer");
    }

    #[test]
    fn whoever_lost_a_device_waits_for_a_source_that_fails_but_not_for_one_that_lacks_it() {
        let with = |sources| Picture { sources, ..picture() };
        let refusal = |picture: &Picture| refusal(picture, Backend::Wasm, Patience::Bereft);
        assert_eq!(refusal(&with(vec![source(true, &[])])), None);
        let lacking = with(vec![source(true, &[Backend::Wasm])]);
        assert_eq!(refusal(&lacking).as_deref(), Some("it is broken"));
        assert!(refusal(&with(vec![])).is_some());
    }
}

//! Watching a running browser from outside: its memory, and whether the tab has crashed.
//!
//! A tab that crashes takes its lanes along, as a line that is cut does, but it never comes back:
//! the browser lives on and shows an apology. What tells the two apart is the process that the page
//! ran in. Browsers have several such processes and do not say which is whose, so the watch takes
//! the one that has computed most: a page that joined a pool computes, the others wait.
//!
//! The watch can be wrong before the page has computed anything. So a [`Tab::Crashed`] alone is a
//! reason to look twice, and together with a line that was cut the reason to start another browser
//! at once instead of waiting for the lanes.

use std::time::Duration;

use crate::browser::Browser;
use crate::processes::{self, Work};

/// How often [`Watch::crashed`] looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Looks after one browser.
pub struct Watch<'a> {
    browser: &'a Browser,
    page: Option<Work>,
    has_crashed: bool,
}

/// What one look saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// As [`Browser::memory`] tells it.
    pub memory_bytes: Option<u64>,
    /// How its tab is.
    pub tab: Tab,
}

/// How the tab of a browser is, by the process that it runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// Its process runs.
    Alive,
    /// Its process is gone, and the browser is not. It stays so: nothing opens the page again.
    Crashed,
    /// It cannot be told: on other systems than Linux, before the browser has opened a page, and
    /// when the browser itself has ended.
    Unknown,
}

impl Browser {
    /// A watch over the browser, to be started when its page has joined.
    pub fn watch(&self) -> Watch<'_> {
        Watch { browser: self, page: None, has_crashed: false }
    }
}

impl Watch<'_> {
    /// Has a look. To be called now and then: each look also notes which process the page is in.
    pub fn look(&mut self) -> Health {
        let tree = self.browser.tree();
        Health { memory_bytes: processes::memory(&tree), tab: self.tab(tree) }
    }

    /// Waits until the tab has crashed. Goes on for ever if it does not, so it is to be awaited
    /// beside something else, such as the browser's own end.
    pub async fn crashed(&mut self) {
        while self.tab(self.browser.tree()) != Tab::Crashed {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The process that the page is taken to run in.
    pub fn page_pid(&self) -> Option<u32> {
        self.page.map(|page| page.pid)
    }

    fn tab(&mut self, tree: Vec<u32>) -> Tab {
        // A browser that ends takes its processes along in any order.
        if !tree.contains(&self.browser.pid()) {
            return Tab::Unknown;
        }
        let renderers = processes::roles(tree).into_iter().filter(|each| each.role == "renderer");
        let work = renderers.filter_map(|each| processes::work(each.pid)).collect::<Vec<_>>();
        self.note(&work)
    }

    fn note(&mut self, renderers: &[Work]) -> Tab {
        let is_there = |page: &Work| renderers.iter().any(|each| each.is_same_process(page));
        self.has_crashed |= self.page.as_ref().is_some_and(|page| !is_there(page));
        if self.has_crashed {
            return Tab::Crashed;
        }
        let busiest = renderers.iter().max_by_key(|each| each.ticks).copied();
        self.page = busiest.or(self.page);
        if self.page.is_some() { Tab::Alive } else { Tab::Unknown }
    }
}

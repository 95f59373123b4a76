//! Which browsers the pool starts, how many, and how.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_browsers::{BrowserError, GuardCommand, Installed, Kind, at, find};
use holdfast_wire::Backend;

/// Which browsers to start, how many, and how.
#[derive(Clone, Debug)]
pub struct BrowserOptions {
    /// A program to use before any that is found.
    pub program: Option<PathBuf>,
    /// Kinds to use, the preferred one first; none for the best there is. The next one is used
    /// while those before it fail, or if they lack what is wanted.
    pub kinds: Vec<Kind>,
    /// Without a window.
    pub headless: bool,
    /// Where a packaged browser is unpacked.
    pub cache: PathBuf,
    /// How the guard is started.
    pub guard: GuardCommand,
    /// Browsers that are kept running, whether there is work or not.
    pub min: usize,
    /// Browsers that may run at the same time.
    pub max: usize,
    /// Lanes of each backend in a browser. Those on WebAssembly divide the cores, also across
    /// browsers that are kept running.
    pub lanes: usize,
    /// Bytes of memory that the processes of one browser may take together before it is replaced;
    /// `None` for what its kind usually gets along with.
    pub memory_limit: Option<u64>,
    /// How long a browser may have nothing to do before it is closed.
    pub idle: Duration,
    /// Further arguments for the program.
    pub extra_arguments: Vec<String>,
}

impl BrowserOptions {
    /// At most one browser, the best there is, without a window, when there is work for it.
    pub fn new(cache: PathBuf, guard: GuardCommand) -> BrowserOptions {
        BrowserOptions {
            program: None,
            kinds: Vec::new(),
            headless: true,
            cache,
            guard,
            min: 0,
            max: 1,
            lanes: 1,
            memory_limit: None,
            idle: Duration::from_secs(60),
            extra_arguments: Vec::new(),
        }
    }

    /// What to start, the preferred one first.
    pub(super) fn sources(&self) -> Vec<Source> {
        let program = self.program.iter().cloned().map(Source::Program);
        let mut sources: Vec<Source> =
            program.chain(self.kinds.iter().copied().map(Source::Kind)).collect();
        if sources.is_empty() {
            sources.push(Source::Best);
        }
        sources
    }

    /// What the link asks of the page, beyond what the server's own says.
    pub(super) fn link(&self, door: &str, page: &str) -> String {
        // One of each is what a page takes by itself, and it says why one is missing.
        let lanes = match self.lanes {
            0 | 1 => String::new(),
            lanes => {
                let each = [Backend::Webgpu, Backend::Webnn, Backend::Wasm].map(Backend::name);
                let names: Vec<&str> =
                    each.into_iter().flat_map(|name| std::iter::repeat_n(name, lanes)).collect();
                format!("&lanes={}", names.join(","))
            }
        };
        // A page divides the cores among its own lanes; it does not know of other browsers.
        let threads = match self.min {
            0 | 1 => String::new(),
            browsers => format!("&threads={}", threads(cores(), browsers * self.lanes.max(1))),
        };
        format!("{door}{lanes}{threads}&page={page}")
    }

    /// What a kind gets where nothing is said is a guess: see the decisions in ARCHITECTURE.md.
    pub(super) fn memory_limit(&self, kind: Kind) -> u64 {
        self.memory_limit.unwrap_or(match kind {
            Kind::Chrome | Kind::Chromium | Kind::Edge | Kind::Packaged => 4 << 30,
            // These hold what is on the GPU in no process of its own.
            Kind::Firefox | Kind::WebKit | Kind::Safari => 3 << 30,
        })
    }
}

/// Threads of one of so many lanes; more than four do not pay off in a browser.
fn threads(cores: usize, lanes: usize) -> usize {
    (cores / lanes).clamp(1, 4)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One thing to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Program(PathBuf),
    Kind(Kind),
    /// Whatever is preferred of what there is.
    Best,
}

impl Source {
    /// Looks for it. Runs programs, and may unpack one.
    pub(super) fn find(
        &self,
        options: &BrowserOptions,
        progress: &dyn Fn(&str),
    ) -> Result<Installed, BrowserError> {
        let kind = match self {
            Source::Program(program) => return at(program),
            Source::Kind(kind) => Some(*kind),
            Source::Best => None,
        };
        find(&options.cache, progress).pick(kind).cloned()
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Program(program) => write!(f, "{}", program.display()),
            Source::Kind(kind) => write!(f, "{kind}"),
            Source::Best => f.write_str("a browser"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> BrowserOptions {
        let guard = GuardCommand { program: PathBuf::from("guard"), arguments: vec![] };
        BrowserOptions::new(PathBuf::from("cache"), guard)
    }

    #[test]
    fn a_program_goes_before_kinds_and_kinds_before_the_best() {
        assert_eq!(options().sources(), [Source::Best]);
        let kinds = vec![Kind::Firefox, Kind::Packaged];
        let listed = BrowserOptions { kinds, ..options() };
        assert_eq!(listed.sources(), [Source::Kind(Kind::Firefox), Source::Kind(Kind::Packaged)]);
        let program = Some(PathBuf::from("/bin/x"));
        let named = BrowserOptions { program, ..listed };
        assert_eq!(named.sources().len(), 3);
        assert_eq!(named.sources()[0], Source::Program(PathBuf::from("/bin/x")));
    }

    #[test]
    fn a_link_names_lanes_only_if_there_are_several_of_each() {
        let door = "http://127.0.0.1:1/join#token=t";
        assert_eq!(options().link(door, "p"), format!("{door}&page=p"));
        let two = BrowserOptions { lanes: 2, ..options() };
        let lanes = "webgpu,webgpu,webnn,webnn,wasm,wasm";
        assert_eq!(two.link(door, "p"), format!("{door}&lanes={lanes}&page=p"));
    }

    #[test]
    fn browsers_that_are_always_there_divide_the_cores() {
        let door = "http://127.0.0.1:1/join#token=t";
        let two = BrowserOptions { min: 2, max: 2, ..options() };
        let threads = threads(cores(), 2);
        assert_eq!(two.link(door, "p"), format!("{door}&threads={threads}&page=p"));
        let cases = [(2, 2, 1), (8, 2, 4), (8, 4, 2), (1, 4, 1), (64, 2, 4)];
        for (cores, lanes, expected) in cases {
            assert_eq!(super::threads(cores, lanes), expected, "{cores} cores, {lanes} lanes");
        }
    }
}

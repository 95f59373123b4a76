//! ONNX Runtime: finding its library, loading it once.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ort::AsPointer;
use ort::environment::Environment;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};

use crate::error::{DeviceError, ErrorKind};

/// The loaded library and the environment that all sessions of this process share.
pub(crate) struct Runtime {
    pub(crate) environment: Environment,
    pub(crate) library: PathBuf,
    /// Name and version, such as `onnxruntime 1.30.0`.
    pub(crate) engine: String,
    /// The engine's own description of its build; part of what identifies a lowered graph,
    /// because two builds of one version may optimise differently.
    pub(crate) build: String,
}

/// Loads ONNX Runtime, once for the process.
///
/// The library is looked for, in this order: at `explicit`; beside the executable and in `lib`
/// next to its folder; in the source tree that this program was built from, where
/// `cargo xtask setup` puts it.
pub(crate) fn runtime(explicit: Option<&Path>) -> Result<&'static Runtime, DeviceError> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    // The loader looks for a relative path in more places than the current folder.
    let explicit = explicit.map(|path| std::path::absolute(path).unwrap_or(path.to_owned()));
    let loaded = RUNTIME.get_or_init(|| load(explicit.as_deref()));
    let runtime =
        loaded.as_ref().map_err(|message| DeviceError::new(ErrorKind::Device, message.clone()))?;
    if let Some(explicit) = explicit
        && explicit != runtime.library
    {
        let loaded = runtime.library.display();
        return Err(DeviceError::caller(format!(
            "ONNX Runtime is already loaded from {loaded}; a process can use one library only"
        )));
    }
    Ok(runtime)
}

fn load(explicit: Option<&Path>) -> Result<Runtime, String> {
    crate::memory::keep_large_blocks_apart();
    let library = find(explicit)?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        let library = library.display();
        format!("{what} ONNX Runtime from {library}: {error}; Holdfast needs version 1.30 or newer")
    };
    let builder = ort::init_from(&library).map_err(|e| failed("cannot load", &e))?;
    let environment = builder
        .with_name("holdfast")
        .with_telemetry(false)
        .build()
        .map_err(|e| failed("cannot start", &e))?;
    // What goes wrong comes back as an error; its log lines would only repeat it on stderr.
    environment.set_log_level(ort::logging::LogLevel::Fatal);
    share_arena(&environment).map_err(|e| failed("cannot set up", &e))?;
    let version = version(&library).map_err(|e| failed("cannot ask the version of", &e))?;
    let engine = format!("onnxruntime {version}");
    Ok(Runtime { environment, engine, build: ort::info().to_owned(), library })
}

/// The library's version. Its description of its build does not always have it, and the crate
/// has no call for it.
fn version(library: &Path) -> Result<String, libloading::Error> {
    use std::ffi::CStr;
    type GetApiBase = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;
    #[expect(unsafe_code, reason = "symbols of a library are untyped")]
    // SAFETY: the library is loaded already, so no initialiser runs; the symbol has had this
    // type since the first version, and the text that it leads to is static.
    unsafe {
        let loaded = libloading::Library::new(library)?;
        let base = loaded.get::<GetApiBase>(b"OrtGetApiBase")?();
        let text = CStr::from_ptr(((*base).GetVersionString)());
        Ok(text.to_string_lossy().into_owned())
    }
}

impl Runtime {
    /// Gives back the memory of activations, which an arena never does by itself. Sessions that
    /// are there keep the old arena until they go.
    pub(crate) fn renew_arena(&self) -> ort::Result<()> {
        let info = arena_info()?;
        #[expect(unsafe_code, reason = "the crate has no call for this")]
        // SAFETY: both pointers are valid for the call. Sessions and values share ownership of
        // the arena, so it goes with the last of them.
        let status = unsafe {
            (ort::api().UnregisterAllocator)(self.environment.ptr().cast_mut(), info.ptr())
        };
        super::value::check(status)?;
        share_arena(&self.environment)
    }
}

/// Registers one arena for the activations of all sessions. Each would grow its own otherwise.
fn share_arena(environment: &Environment) -> ort::Result<()> {
    let info = arena_info()?;
    #[expect(unsafe_code, reason = "the crate has no call for this")]
    // SAFETY: both pointers are valid for the call; the library copies what it needs. A null
    // configuration means the defaults.
    let status = unsafe {
        let environment = environment.ptr().cast_mut();
        (ort::api().CreateAndRegisterAllocator)(environment, info.ptr(), std::ptr::null())
    };
    super::value::check(status)
}

fn arena_info() -> ort::Result<MemoryInfo<'static>> {
    MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Arena, MemoryType::Default)
}

const WHAT_TO_DO: &str = "In a source tree, run `cargo xtask setup`; elsewhere, put the library \
                          beside the `holdfast` program or name it with `--onnxruntime FILE`";

fn find(explicit: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = explicit {
        return if path.is_file() {
            Ok(path.to_owned())
        } else {
            Err(format!("there is no ONNX Runtime library at {}. {WHAT_TO_DO}", path.display()))
        };
    }
    let candidates = candidates();
    let found = candidates.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| {
        let tried: Vec<String> =
            candidates.iter().map(|path| format!("  {}", path.display())).collect();
        let tried = tried.join("\n");
        format!("the ONNX Runtime library is missing. {WHAT_TO_DO}. Looked at:\n{tried}")
    })
}

fn candidates() -> Vec<PathBuf> {
    let (system, names): (&str, &[&str]) = match std::env::consts::OS {
        "windows" => ("win32", &["onnxruntime.dll"]),
        "macos" => ("darwin", &["libonnxruntime.dylib", "libonnxruntime.1.30.0.dylib"]),
        other => (other, &["libonnxruntime.so.1", "libonnxruntime.so"]),
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut folders = Vec::new();
    if let Some(program) = std::env::current_exe().ok().and_then(|path| path.canonicalize().ok())
        && let Some(folder) = program.parent()
    {
        folders.push(folder.to_owned());
        folders.extend(folder.parent().map(|above| above.join("lib")));
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = workspace.canonicalize().unwrap_or(workspace);
    let package = "third-party/node_modules/onnxruntime-node/bin/napi-v6";
    folders.push(workspace.join(package).join(system).join(architecture));
    folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name))).collect()
}

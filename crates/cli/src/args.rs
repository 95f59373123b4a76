//! What the user types.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use holdfast_models::Store;
use holdfast_pool::{Choices, Priority};
use holdfast_predict::Goal;

mod browser;
mod demo;
mod history;
mod load;
mod predict;
mod share;

use browser::DEVICE_DEFAULTS;
pub(crate) use browser::{BrowserArgs, Browsers, FleetArgs, Patience};
pub(crate) use demo::{DemoArgs, DemoSideArgs, Scenario};
pub(crate) use history::{DbArgs, HistoryArgs, ReportArgs};
pub(crate) use load::{BenchArgs, PoolArgs};
pub(crate) use predict::{
    CompareArgs, ModelBatch, PlaceArgs, PredictArgs, RefineArgs, ValidateArgs, Way,
};
pub(crate) use share::{ShareArgs, ShareTarget};

/// Run several AI models together: what they have in common is stored and loaded once.
#[derive(Parser)]
#[command(name = "holdfast", version, about, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  holdfast import ./all-MiniLM-L6-v2
  holdfast run all-MiniLM-L6-v2 --text \"hello\" --pool mean
  holdfast run all-MiniLM-L6-v2 --text \"hello\" --device webgpu,wasm,cpu
  holdfast show all-MiniLM-L6-v2

Exit codes: 0 done, 1 failed, 2 the command was not understood.";

/// What every command takes.
#[derive(clap::Args)]
pub(crate) struct Global {
    /// Where models are kept [default: the platform's data folder]
    #[arg(long, global = true, env = "HOLDFAST_HOME", value_name = "DIR", hide_env_values = true)]
    pub(crate) home: Option<PathBuf>,
    /// Print JSON with stable keys instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The ONNX Runtime library [default: beside this program, or the source tree's]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) onnxruntime: Option<PathBuf>,
}

impl Global {
    /// Opens the store.
    pub(crate) fn store(&self) -> anyhow::Result<Store> {
        Ok(Store::open(self.home()?)?)
    }

    /// The store's folder.
    pub(crate) fn home(&self) -> anyhow::Result<PathBuf> {
        let home = self.home.clone().or_else(holdfast_models::default_home);
        home.ok_or_else(|| anyhow::anyhow!("this system names no data folder; use --home DIR"))
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Import an ONNX file or a Hugging Face style folder
    Import(ImportArgs),
    /// Download a model from a hub and import it
    Pull(PullArgs),
    /// List the models in the store
    Models,
    /// Show what a model is made of
    Show(ShowArgs),
    /// Say what models have in common, what that saves, and why the rest is not shared
    Share(ShareArgs),
    /// Remove models; `gc` then frees what only they had
    Rm(RmArgs),
    /// Check that every stored byte is what it was
    Verify(VerifyArgs),
    /// Remove what no model needs
    Gc(GcArgs),
    /// Run models on text, pictures, sound or tensors
    Run(RunArgs),
    /// Serve models and take browsers in, until Ctrl-C
    Serve(ServeArgs),
    /// Print the link by which a browser joins the running server
    Join(JoinArgs),
    /// Watch the running server's browsers, models, queue and times
    Pool(PoolArgs),
    /// Measure how fast models run here: throughput and latency, by model and device
    Bench(BenchArgs),
    /// Say what a mix of models will cost before it runs, and how sure that is
    Predict(PredictArgs),
    /// Run a mix in every way, in turns, and say which is best
    Compare(CompareArgs),
    /// Predict mixes drawn at random, run them, and say how good the predictions were
    Validate(ValidateArgs),
    /// Change the predictor by its past errors, where that helps
    Refine(RefineArgs),
    /// List what was predicted and what it was
    History(HistoryArgs),
    /// Write a report of predictions, measurements and what was learned from them
    Report(ReportArgs),
    /// Say what this machine and its browsers can do, and how to fix the rest
    Doctor(DoctorArgs),
    /// Show what sharing saves, on models that are made and trained for it
    Demo(DemoArgs),
    /// Make seeded models in code, for tests and benchmarks
    Synth(SynthArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Own a browser that this program started; not for people
    #[command(hide = true)]
    Guard,
    /// Run one side of the demo's comparison; not for people
    #[command(hide = true)]
    DemoSide(DemoSideArgs),
}

#[derive(clap::Args)]
#[command(after_help = "\
A folder's components are found by name (model.onnx, model_fp16.onnx, encoder_model.onnx,
decoder_model_merged.onnx …) in the folder and in its `onnx` folder. All precision variants
are imported; `run` takes the first of fp32, fp16, q8, int8, uint8, q4f16, q4, bnb4.
A weight that the store already has is not written again.

Examples:
  holdfast import ./all-MiniLM-L6-v2
  holdfast import ./model_fp16.onnx --name mini")]
pub(crate) struct ImportArgs {
    /// An `.onnx` file or a folder
    pub(crate) path: PathBuf,
    /// The model's name [default: that of the folder or file]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Import only this precision variant
    #[arg(long)]
    pub(crate) variant: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Only the side files and one precision variant are downloaded: the first that the repository
has of fp32, fp16, q8, int8, uint8, q4f16, q4, bnb4, or the one that --variant names.
An interrupted download goes on where it stopped. The endpoint comes from --endpoint or
HF_ENDPOINT, the token from HF_TOKEN or the file that `huggingface-cli login` writes.

Examples:
  holdfast pull Xenova/all-MiniLM-L6-v2
  holdfast pull Xenova/whisper-tiny --variant q8 --name whisper")]
pub(crate) struct PullArgs {
    /// The repository, as OWNER/NAME
    pub(crate) repository: String,
    /// The model's name [default: that of the repository]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The branch, tag or commit
    #[arg(long, default_value = "main")]
    pub(crate) revision: String,
    /// The precision variant to download, or `all`
    #[arg(long)]
    pub(crate) variant: Option<String>,
    /// The hub's address
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Costs depend on the sizes of named dimensions; those not given with --dim are taken as 1,
sequence lengths as 128.

Examples:
  holdfast show all-MiniLM-L6-v2
  holdfast show all-MiniLM-L6-v2 --dim batch_size=8 --dim sequence_length=256")]
pub(crate) struct ShowArgs {
    /// The model
    pub(crate) model: String,
    /// The size of a named dimension, for the cost
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    pub(crate) dims: Vec<(String, usize)>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Weights that other models have too stay. The rest is freed by `holdfast gc`; until then,
importing the model again writes nothing.

Examples:
  holdfast rm all-MiniLM-L6-v2
  holdfast rm first second && holdfast gc")]
pub(crate) struct RmArgs {
    /// The models
    #[arg(required = true)]
    pub(crate) models: Vec<String>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Reads and hashes everything that the models need. The exit code is 1 if something is damaged
or missing; importing the model again repairs it.

Examples:
  holdfast verify
  holdfast verify all-MiniLM-L6-v2")]
pub(crate) struct VerifyArgs {
    /// One model [default: all]
    pub(crate) model: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Removes weights that no model has any more, graphs that were derived from models that are
gone, and what interrupted imports left. Waits until nobody is importing.

Examples:
  holdfast gc --dry-run
  holdfast gc")]
pub(crate) struct GcArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Text goes through the model's own tokenizer, pictures through its preprocessor, sound is
resampled to its rate. Several --text, --image or --audio make a batch. Inputs that these do
not give come from --input, as .npy files.

A device is `cpu`, or `webgpu`, `webnn` or `wasm` in a browser, which is started for it. Of a
list, the first that can run the model is used, and the output says why others were passed
over. `auto` takes an accelerator if there is one, else cpu; `browser` the best of a browser.
While `holdfast serve` runs, its browsers and its loaded models are used.

Several models run one after the other. With --strategy they run together: parallel, sequential,
batched, or auto for the one that `holdfast predict` recommends. What that takes is predicted
before, said beside what it took, and learned from.

Examples:
  holdfast run all-MiniLM-L6-v2 --text \"a dog\" --text \"a puppy\" --pool mean --similarity
  holdfast run all-MiniLM-L6-v2 gte-small --text \"hello\" --repeat 20 --threads 1
  holdfast run all-MiniLM-L6-v2 gte-small --text \"hello\" --strategy auto --goal throughput
  holdfast run all-MiniLM-L6-v2 --text \"hello\" --device webgpu,webnn,wasm,cpu
  holdfast run all-MiniLM-L6-v2 --text \"hello\" --device wasm --browser firefox
  holdfast run detector --input x=page.npy --out results/")]
pub(crate) struct RunArgs {
    /// The models
    #[arg(required = true)]
    pub(crate) models: Vec<String>,
    /// A text; may be repeated
    #[arg(long = "text", value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
    /// A PNG or JPEG file; may be repeated
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<PathBuf>,
    /// A WAV file; may be repeated
    #[arg(long = "audio", value_name = "FILE")]
    pub(crate) audio: Vec<PathBuf>,
    /// The rate that sound is resampled to, for models that do not say
    #[arg(long, value_name = "HERTZ")]
    pub(crate) rate: Option<u32>,
    /// A tensor for an input; may be repeated
    #[arg(long = "input", value_name = "NAME=FILE.npy", value_parser = parse_input)]
    pub(crate) inputs: Vec<(String, PathBuf)>,
    /// How token vectors become one embedding: mean, cls, max, last or none
    /// [default: what the model says]
    #[arg(long, value_name = "HOW")]
    pub(crate) pool: Option<String>,
    /// Compare the embeddings of the texts with each other
    #[arg(long)]
    pub(crate) similarity: bool,
    /// Write the outputs there as .npy files
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// What to run on, in the order you prefer: webgpu, webnn, wasm, cpu; or auto, browser
    /// [default: cpu, or browser if something is said of browsers]
    #[arg(long, value_name = "LIST", default_value = "cpu", default_value_ifs = DEVICE_DEFAULTS, hide_default_value = true)]
    pub(crate) device: Choices,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// The component to run, for models that have several
    #[arg(long, value_name = "ROLE")]
    pub(crate) component: Option<String>,
    /// The precision variant [default: the most faithful that the model has]
    #[arg(long)]
    pub(crate) variant: Option<String>,
    /// Run that many times and report the times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) repeat: u32,
    /// Threads for one operator [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Who goes first where several ask one server: high, normal or low
    #[arg(long, value_name = "PRIORITY", default_value_t = Priority::Normal)]
    pub(crate) priority: Priority,
    /// Run the models together: parallel, sequential, batched, or auto for what is recommended
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) strategy: Option<Way>,
    /// What `--strategy auto` is for: latency, throughput or memory
    #[arg(long, value_name = "GOAL", default_value_t = Goal::Latency, requires = "strategy")]
    pub(crate) goal: Goal,
    /// Run each model on its own, although models have something in common
    #[arg(long)]
    pub(crate) no_share: bool,
    /// Give up on a run after this long
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) deadline: Option<std::time::Duration>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Writes its address and a secret to server.json in the store's folder, readable by you alone;
`holdfast run`, `pool`, `bench`, `join`, `history` and `report` find it there. A browser is started when a model
first needs one; any other joins by the link. Ctrl-C lets what is running finish, a second one
does not wait. An address beyond this machine needs TLS, because browsers give no GPU, storage or
cryptography to plain http pages.

Examples:
  holdfast serve
  holdfast serve --port 0 --no-browser
  holdfast serve --browser chrome,firefox --browsers 1-4 --lanes 2
  holdfast serve --address 0.0.0.0 --tls self-signed --name studio.local")]
pub(crate) struct ServeArgs {
    /// The port; 0 for any
    #[arg(long, default_value_t = 8765)]
    pub(crate) port: u16,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) address: std::net::IpAddr,
    /// Make a certificate for this run; its fingerprint is shown
    #[arg(long, value_name = "HOW", value_parser = ["self-signed"], conflicts_with_all = ["tls_cert", "tls_key"])]
    pub(crate) tls: Option<String>,
    /// A certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A name by which others reach this machine, for the link and for a certificate that is
    /// made here; may be given more than once [default: what the certificate says, or the address]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,
    /// Start no browser; wait for some to join
    #[arg(long)]
    pub(crate) no_browser: bool,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Threads for one operator on the processor [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Show the link as a QR code [default: where others can reach it, on a terminal]
    #[arg(long)]
    pub(crate) qr: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Any browser that opens the link takes part for as long as its page is open. On a terminal the
link is also a QR code for a phone, if the server can be reached by one: start it with
`holdfast serve --address 0.0.0.0 --tls self-signed`.

Examples:
  holdfast join
  holdfast join --qr")]
pub(crate) struct JoinArgs {
    /// Show the link as a QR code [default: where others can reach it, on a terminal]
    #[arg(long)]
    pub(crate) qr: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Starts every browser that is found, one after the other, asks it what it has, and measures each
backend for a moment.

Examples:
  holdfast doctor
  holdfast doctor --no-browser
  holdfast doctor --browser chrome")]
pub(crate) struct DoctorArgs {
    /// Start no browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}

#[derive(clap::Args)]
#[command(after_help = "\
Kinds: bert, distilbert, t5-encoder, vit, clip, whisper-encoder, llama; and families that
have weights in common: heads, adapters, decoder-twins.

Examples:
  holdfast synth bert --layers 12 --hidden 512 --out models/
  holdfast synth adapters --count 4 --rank 8 --layers 12 --hidden 512 --out models/")]
pub(crate) struct SynthArgs {
    /// What to make
    pub(crate) kind: String,
    /// Layers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) layers: u32,
    /// Width of a layer
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(32..=65536))]
    pub(crate) hidden: u32,
    /// Attention heads [default: as in real models of that width]
    #[arg(long)]
    pub(crate) heads: Option<usize>,
    /// Tokens that the model knows [default: 256 if tiny, else as BERT]
    #[arg(long)]
    pub(crate) vocabulary: Option<usize>,
    /// What the weights are drawn from
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Members of a family
    #[arg(long, default_value_t = 4)]
    pub(crate) count: usize,
    /// Rank of adapters
    #[arg(long, default_value_t = 8)]
    pub(crate) rank: usize,
    /// The folder to write to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast completions bash > ~/.local/share/bash-completion/completions/holdfast
  holdfast completions zsh > ~/.zfunc/_holdfast
  holdfast completions fish > ~/.config/fish/completions/holdfast.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

fn parse_dim(text: &str) -> Result<(String, usize), String> {
    let (name, size) = text.split_once('=').ok_or("expected NAME=SIZE, such as batch_size=8")?;
    let size = size.parse().map_err(|_| format!("`{size}` is not a size"))?;
    Ok((name.to_owned(), size))
}

fn parse_input(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) =
        text.split_once('=').ok_or("expected NAME=FILE.npy, such as input_ids=ids.npy")?;
    Ok((name.to_owned(), file.into()))
}

fn parse_seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    std::time::Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "expected a number of seconds above zero".to_owned())
}

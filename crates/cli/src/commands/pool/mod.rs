//! `holdfast pool`: what the running server's pool is doing.

mod browsers;
mod names;
mod screen;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::bail;
use holdfast_server::ServerFile;

use crate::args::{Global, PoolArgs};
use crate::interrupt::interrupted;
use crate::output;
use names::Names;
use screen::Screen;
use view::View;

/// How often it is drawn again.
const PERIOD: Duration = Duration::from_secs(1);

pub(crate) fn run(global: &Global, args: &PoolArgs) -> anyhow::Result<()> {
    let home = global.home()?;
    let Some(server) = ServerFile::find(&home) else {
        bail!("no server runs on {}; start one with `holdfast serve`", home.display());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if global.json {
            return output::print_json(&serde_json::to_value(server.metrics().await?)?);
        }
        let mut names = Names::new(global.store()?);
        if args.once || !std::io::stdout().is_terminal() {
            return look(&server, &mut names).await?.lines().iter().try_for_each(output::line);
        }
        watch(&home, &server, &mut names).await
    })
}

/// Draws until Ctrl-C, or until the server ends.
async fn watch(
    home: &std::path::Path,
    server: &ServerFile,
    names: &mut Names,
) -> anyhow::Result<()> {
    let mut screen = Screen::new();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let interrupted = interrupted();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            () = &mut interrupted => return Ok(()),
            _ = ticks.tick() => {}
        }
        let seen = tokio::select! {
            () = &mut interrupted => return Ok(()),
            seen = look(server, names) => seen,
        };
        match seen {
            Ok(view) => screen.draw(&view.lines())?,
            Err(_) if ServerFile::find(home).as_ref() != Some(server) => {
                drop(screen);
                return output::line("the server has ended");
            }
            Err(error) => return Err(error),
        }
    }
}

async fn look(server: &ServerFile, names: &mut Names) -> anyhow::Result<View> {
    let (metrics, status) = (server.metrics().await?, server.status().await?);
    let names = names.of(&metrics)?;
    Ok(View { origin: server.origin.clone(), metrics, lanes: status.lanes, names })
}

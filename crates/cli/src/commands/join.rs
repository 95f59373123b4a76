//! `holdfast join`

use anyhow::bail;
use holdfast_server::ServerFile;
use serde_json::json;

use crate::args::{Global, JoinArgs};
use crate::{output, qr};

pub(crate) fn run(global: &Global, args: &JoinArgs) -> anyhow::Result<()> {
    let home = global.home()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let link = runtime.block_on(async {
        match ServerFile::find(&home) {
            Some(server) => Ok(server.join_link().await?),
            None => bail!("no server runs on {}; start one with `holdfast serve`", home.display()),
        }
    })?;
    if global.json {
        return output::print_json(&json!({ "link": link }));
    }
    output::line(&link)?;
    qr::show(&link, args.qr)
}

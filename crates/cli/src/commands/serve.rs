//! `holdfast serve`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_pool::Pool;
use holdfast_server::{Server, ServerOptions, Tls};
use serde_json::json;

use crate::args::{Global, ServeArgs};
use crate::chronicle::Recording;
use crate::interrupt::interrupted;
use crate::place::pool_options;
use crate::{output, qr};

/// How long requests under way may take after the first Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(global: &Global, args: &ServeArgs) -> anyhow::Result<()> {
    let store = Arc::new(global.store()?);
    let fleet = (!args.no_browser).then_some(&args.fleet);
    let options = pool_options(global, fleet, args.threads, Arc::new(|_| {}))?;
    let tls = match (&args.tls, &args.tls_cert, &args.tls_key) {
        (Some(_), _, _) => Some(Tls::SelfSigned),
        (None, Some(cert), Some(key)) => Some(Tls::Files { cert: cert.clone(), key: key.clone() }),
        _ => None,
    };
    let recording = Recording::start(global, &args.db)?;
    let options = recording.of_pool(options);
    let address = SocketAddr::new(args.address, args.port);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let pool = Arc::new(Pool::new(store, options)?);
        let home = Some(global.home()?);
        let options = ServerOptions {
            address,
            tls,
            names: args.name.clone(),
            home,
            pool: Some(pool.clone()),
            history: Some(recording.history.clone()),
            ..ServerOptions::default()
        };
        let server = Server::start(pool.lanes().clone(), options).await?;
        if !args.no_browser {
            pool.open_door(server.own_link().await?);
        }
        announce(global, args, &server)?;
        interrupted().await;
        if !global.json {
            output::line("stopping: what is running may finish; Ctrl-C again to stop at once")?;
        }
        tokio::select! {
            () = async {
                server.stop(PATIENCE).await;
                pool.ledger().settled().await;
                pool.ledger().save();
                pool.close().await;
            } => {}
            () = interrupted() => {}
        }
        anyhow::Ok(())
    })?;
    recording.finish();
    Ok(())
}

fn announce(global: &Global, args: &ServeArgs, server: &Server) -> anyhow::Result<()> {
    if global.json {
        return output::print_json(&json!({
            "origin": server.origin(),
            "join": server.join_link(),
            "fingerprint": server.fingerprint(),
        }));
    }
    output::line(format!("serving at {}", server.origin()))?;
    if let Some(fingerprint) = server.fingerprint() {
        output::line(format!("certificate SHA-256 {fingerprint}"))?;
    }
    output::line(format!("browsers join by {}", server.join_link()))?;
    qr::show(&server.join_link(), args.qr)?;
    output::line("Ctrl-C to stop")
}

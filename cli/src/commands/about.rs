//! `--version`, `completions`, `man`.

use std::path::Path;

use clap::CommandFactory;
use forebay_cas::Classify;
use forebay_format::RepositoryConfig;
use serde_json::json;

use crate::args::Args;
use crate::failure::Failure;
use crate::output::Output;

/// `forebay --version`
pub(crate) fn version(output: &Output) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    output.line(&format!("forebay {version} (repository format {})", RepositoryConfig::FORMAT))?;
    output.result(json!({ "name": "forebay", "version": version, "format": RepositoryConfig::FORMAT }))?;
    output.flush()
}

/// `forebay completions SHELL`
pub(crate) fn completions(shell: clap_complete::Shell, output: &Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "forebay", &mut script);
    if output.is_json() {
        let script = String::from_utf8_lossy(&script);
        return output.result(json!({ "shell": shell.to_string(), "script": script }));
    }
    output.raw(&script)?;
    output.flush()
}

/// `forebay man DIR`
pub(crate) fn man(dir: &Path, output: &Output) -> Result<(), Failure> {
    let failed = |source: std::io::Error| {
        Failure::new(source.class(), format_args!("manual pages cannot be written to {}: {source}", dir.display()))
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Args::command(), dir).map_err(failed)?;
    output.result(json!({ "dir": dir.display().to_string() }))
}

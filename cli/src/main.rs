//! The `forebay` command: arguments, settings, output and exit codes around the store.
//!
//! Data flows one way: [`args`] (what was typed) and [`settings`] (what holds) make a [`context::Context`]; a module of
//! [`commands`] does the work through `forebay-cas`; [`output`] shows it; [`failure`] maps every error to its exit code.

mod args;
mod commands;
mod context;
mod failure;
mod library;
mod meter;
mod output;
mod pins;
mod settings;
mod stdio;
mod stop;
mod text;
mod trust;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Output;

/// Chunks of up to a few MiB come and go on several threads; the C library's allocator gives their pages back to the system
/// and clears them anew each time.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let json = args::asks_for_json();
    let parsed = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return args::refuse(&error, json),
    };
    let output = Output::new(json, parsed.global.quiet, parsed.global.color);
    match run(&parsed, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(args: &Args, output: &Output) -> Result<(), Failure> {
    let Some(command) = &args.command else {
        return commands::about::version(output);
    };
    match command {
        Command::Completions { shell } => return commands::about::completions(*shell, output),
        Command::Man { dir } => return commands::about::man(dir, output),
        _ => {}
    }
    let settings = settings::resolve(&args.global)?;
    let context = Context::new(settings, args.global.verbose, output)?;
    match dispatch(command, &context) {
        // The index is a cache: one that is damaged is thrown away, and the command runs again.
        Err(failure) if failure.damaged_index().is_some() => {
            context.throw_away_index(&failure)?;
            dispatch(command, &context)
        }
        result => result,
    }
}

fn dispatch(command: &Command, context: &Context<'_>) -> Result<(), Failure> {
    match command {
        Command::Init(args) => commands::init::run(context, args),
        Command::Push(args) => commands::push::run(context, args),
        Command::Fetch(args) => commands::fetch::run(context, args),
        Command::Mount(args) => commands::mount::run(context, args),
        Command::Umount(args) => commands::umount::run(context, args),
        Command::Cat { path } => commands::cat::run(context, path),
        Command::Ls(args) => commands::ls::run(context, args),
        Command::Node(args) => commands::node::run(context, args),
        Command::Warm(args) => commands::warm::run(context, args),
        Command::Refs => commands::refs::list(context),
        Command::Log { name } => commands::refs::log(context, name),
        Command::Rm { name } => commands::refs::remove(context, name),
        Command::Diff { old, new } => commands::diff::run(context, old, new),
        Command::Verify(args) => commands::verify::run(context, args),
        Command::Gc(args) => commands::gc::run(context, args),
        Command::Du { name } => commands::du::run(context, name.as_deref()),
        Command::Egress { command } => commands::egress::run(context, command),
        Command::Checkpoint { command } => commands::checkpoint::run(context, command),
        Command::Key { command } => commands::key::run(context, command),
        Command::Config { show: args::ConfigCommand::Show } => commands::config::show(context),
        Command::Completions { .. } | Command::Man { .. } => Ok(()),
    }
}

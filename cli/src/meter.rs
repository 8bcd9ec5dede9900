//! Shows how far a command is: a bar on a terminal, a line now and then without one, JSON with `--json`.

use std::sync::Arc;
use std::time::Duration;

use forebay_cas::{Progress, clock};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::output::Output;
use crate::text;

/// How often a bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// JSON progress comes at most twice a second.
const JSON_EVERY: Duration = Duration::from_millis(500);
/// Plain lines come this often.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows a [`Progress`] until it is dropped.
#[derive(Debug)]
pub(crate) struct Meter {
    progress: Arc<Progress>,
    task: Option<JoinHandle<()>>,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// Starts to show progress of what a word describes, such as `push`.
    pub(crate) fn start(output: &Output, runtime: &Handle, what: &'static str) -> Self {
        let progress = Arc::new(Progress::default());
        if output.is_quiet() && !output.is_json() {
            return Self { progress, task: None, bar: None };
        }
        let bar = output.draws().then(|| new_bar(output, what));
        let every = match (&bar, output.is_json()) {
            (Some(_), _) => DRAW_EVERY,
            (None, true) => JSON_EVERY,
            (None, false) => LINE_EVERY,
        };
        let (shown, output, drawn) = (Arc::clone(&progress), output.clone(), bar.clone());
        let task = runtime.spawn(async move {
            let mut last = 0;
            loop {
                clock::sleep(every).await;
                last = show(&output, &shown, drawn.as_ref(), what, every, last);
            }
        });
        Self { progress, task: Some(task), bar }
    }

    /// The counters to count on.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(output: &Output, what: &'static str) -> ProgressBar {
    let template =
        "{prefix} {wide_bar} {decimal_bytes}/{decimal_total_bytes}  {decimal_bytes_per_sec}  ETA {eta}  {msg}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = output.bars().add(ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()));
    bar.set_style(style);
    bar.set_prefix(what);
    bar
}

/// Shows the counters once and returns the bytes done.
fn show(
    output: &Output,
    progress: &Progress,
    bar: Option<&ProgressBar>,
    what: &str,
    every: Duration,
    last: u64,
) -> u64 {
    let (bytes, total) = (Progress::get(&progress.bytes), Progress::get(&progress.bytes_total));
    let (files, files_total) = (Progress::get(&progress.files), Progress::get(&progress.files_total));
    if let Some(bar) = bar {
        bar.set_length(total);
        bar.set_position(bytes);
        bar.set_message(format!("{files}/{files_total} files"));
    } else if output.is_json() {
        let object = json!({
            "what": what, "files": files, "files_total": files_total, "bytes": bytes, "bytes_total": total,
        });
        let _closed = output.item("progress", object).and_then(|()| output.flush());
    } else {
        let rate = (bytes - last.min(bytes)) / every.as_secs().max(1);
        let eta = total.saturating_sub(bytes).checked_div(rate).map_or_else(|| "?".to_owned(), |s| format!("{s} s"));
        let (done, all, rate) = (text::bytes(bytes), text::bytes(total), text::bytes(rate));
        output.say(&format!("{what}: {files}/{files_total} files, {done} of {all}, {rate}/s, ETA {eta}"));
    }
    bytes
}

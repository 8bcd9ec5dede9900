//! Arguments of `forebay egress`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use forebay_policy::{Budget, Column, Month, Scope};

#[derive(Debug, Subcommand)]
pub(crate) enum EgressCommand {
    /// Show what was sent in a month, for whom, over which way and at what cost
    Report(ReportArgs),
    /// Limits on what tenants and jobs may send in a calendar month (UTC)
    Budget {
        #[command(subcommand)]
        command: BudgetCommand,
    },
    /// Rate cards: what a byte costs on which way
    Rates {
        #[command(subcommand)]
        command: RatesCommand,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReportArgs {
    /// Calendar month, UTC [default: this month]
    #[arg(long, value_name = "YYYY-MM")]
    pub(crate) month: Option<Month>,
    /// Columns to sum up by: tenant, job, dataset, class, tier, from, to, day, node
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', default_value = "tenant,from,to")]
    pub(crate) by: Vec<Column>,
    /// How to print it [default: table, or json with --json]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ReportFormat>,
    /// Rate card (TOML), or `none` [env: FOREBAY_RATES]
    #[arg(long, value_name = "FILE")]
    pub(crate) rates: Option<PathBuf>,
    /// Price everything as sold by this provider
    #[arg(long, value_name = "P")]
    pub(crate) provider: Option<String>,
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people.
    Table,
    /// One JSON object.
    Json,
    /// Comma-separated values with a header.
    Csv,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Set the budget of a tenant or job
    Set {
        /// TENANT or TENANT/JOB
        scope: Scope,
        /// Bytes with a unit as 100GB, or money as 25USD, in each calendar month
        amount: Budget,
    },
    /// List all budgets, with what is used and booked this month
    Ls,
    /// Take the budget of a tenant or job away
    Rm {
        /// TENANT or TENANT/JOB
        scope: Scope,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RatesCommand {
    /// Check a rate card
    Check {
        /// Rate card (TOML)
        file: PathBuf,
    },
}

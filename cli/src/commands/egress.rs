//! `forebay egress`

mod budget;
mod card;
mod report;
mod table;

pub(crate) use self::card::read as read_card;
use crate::args::egress::{BudgetCommand, EgressCommand, RatesCommand};
use crate::context::Context;
use crate::failure::Failure;

pub(crate) fn run(context: &Context<'_>, command: &EgressCommand) -> Result<(), Failure> {
    match command {
        EgressCommand::Report(args) => report::run(context, args),
        EgressCommand::Budget { command: BudgetCommand::Set { scope, amount } } => {
            budget::set(context, scope, Some(*amount))
        }
        EgressCommand::Budget { command: BudgetCommand::Rm { scope } } => budget::remove(context, scope),
        EgressCommand::Budget { command: BudgetCommand::Ls } => budget::list(context),
        EgressCommand::Rates { command: RatesCommand::Check { file } } => card::check(context, file),
    }
}

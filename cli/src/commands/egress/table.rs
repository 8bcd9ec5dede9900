//! Columns of text and of numbers.

/// A column with its header.
#[derive(Debug)]
pub(super) struct TextTable {
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    cells: Vec<String>,
    right: bool,
}

impl TextTable {
    pub(super) const fn new() -> Self {
        Self { columns: Vec::new() }
    }

    /// Adds a column of words.
    pub(super) fn words(&mut self, header: &str, cells: impl IntoIterator<Item = String>) {
        self.push(header, cells, false);
    }

    /// Adds a column of numbers, right-aligned.
    pub(super) fn numbers(&mut self, header: &str, cells: impl IntoIterator<Item = String>) {
        self.push(header, cells, true);
    }

    /// Adds a column of decimal numbers that all get as many decimals as the longest, at least `decimals`.
    pub(super) fn decimals(&mut self, header: &str, decimals: usize, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        let places = |cell: &str| cell.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let most = cells.iter().map(|cell| places(cell)).max().unwrap_or(0).max(decimals);
        for cell in cells.iter_mut().filter(|cell| !cell.is_empty()) {
            let missing = most - places(cell);
            if !cell.contains('.') && missing > 0 {
                cell.push('.');
            }
            cell.push_str(&"0".repeat(missing));
        }
        self.push(header, cells, true);
    }

    /// The lines, the header first.
    pub(super) fn lines(&self) -> Vec<String> {
        let rows = self.columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
        let mut lines = vec![String::new(); rows];
        for column in &self.columns {
            let width = column.cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
            for (line, cell) in lines.iter_mut().zip(&column.cells) {
                let fill = " ".repeat(width - cell.chars().count());
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let (before, behind) = if column.right { (&*fill, "") } else { ("", &*fill) };
                line.extend([before, cell, behind]);
            }
        }
        lines.iter().map(|line| line.trim_end().to_owned()).collect()
    }

    fn push(&mut self, header: &str, cells: impl IntoIterator<Item = String>, right: bool) {
        let cells = std::iter::once(header.to_owned()).chain(cells).collect();
        self.columns.push(Column { cells, right });
    }
}

/// GB (10^9 bytes) in full, without needless zeros.
pub(super) fn gigabytes(bytes: u64) -> String {
    let text = format!("{}.{:09}", bytes / 1_000_000_000, bytes % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_stand_below_each_other() {
        let mut table = TextTable::new();
        table.words("tenant", ["acme", "x"].map(str::to_owned));
        table.decimals("cost USD", 2, ["9.663676416", "2"].map(str::to_owned));
        table.numbers("requests", ["7", "30"].map(str::to_owned));
        assert_eq!(
            table.lines(),
            ["tenant     cost USD  requests", "acme    9.663676416         7", "x       2.000000000        30"]
        );
        assert_eq!(
            [0, 1, 1_500_000_000, u64::MAX].map(gigabytes),
            ["0", "0.000000001", "1.5", "18446744073.709551615"]
        );
    }
}

//! A writer of Parquet files: plain uncompressed values, one page for each column of a row group. Every reader supports
//! this, and it is enough for a few million rows.

use monosplit_graph::{Error, Result};

/// Rows in a group. The size of a page in bytes is a 31-bit number.
const GROUP: usize = 100_000;
const MAGIC: &[u8] = b"PAR1";

/// A column and its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Texts or nulls.
    Text(Vec<Option<String>>),
    /// Real numbers or nulls.
    Real(Vec<Option<f64>>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Truth values.
    Flag(Vec<bool>),
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Column::Text(values) => values.len(),
            Column::Real(values) => values.len(),
            Column::Whole(values) => values.len(),
            Column::Flag(values) => values.len(),
        }
    }

    /// The type's number in the format.
    fn kind(&self) -> i32 {
        match self {
            Column::Flag(_) => 0,
            Column::Whole(_) => 2,
            Column::Real(_) => 5,
            Column::Text(_) => 6,
        }
    }

    fn may_miss(&self) -> bool {
        matches!(self, Column::Text(_) | Column::Real(_))
    }

    /// The page of rows `from..to`, without its header.
    fn page(&self, from: usize, to: usize) -> Vec<u8> {
        let mut page = Vec::new();
        match self {
            Column::Text(values) => {
                levels(&mut page, values[from..to].iter().map(Option::is_some));
                for text in values[from..to].iter().flatten() {
                    page.extend((text.len() as u32).to_le_bytes());
                    page.extend(text.as_bytes());
                }
            }
            Column::Real(values) => {
                levels(&mut page, values[from..to].iter().map(Option::is_some));
                values[from..to].iter().flatten().for_each(|value| page.extend(value.to_le_bytes()));
            }
            Column::Whole(values) => {
                values[from..to].iter().for_each(|value| page.extend(value.to_le_bytes()));
            }
            Column::Flag(values) => page.extend(bits(values[from..to].iter().copied())),
        }
        page
    }
}

/// Eight truth values a byte, the first in the lowest bit.
fn bits(flags: impl Iterator<Item = bool>) -> Vec<u8> {
    let flags: Vec<bool> = flags.collect();
    let byte =
        |chunk: &[bool]| chunk.iter().enumerate().fold(0u8, |byte, (at, &on)| byte | u8::from(on) << at);
    flags.chunks(8).map(byte).collect()
}

/// The definition levels: one run of bits.
fn levels(page: &mut Vec<u8>, present: impl Iterator<Item = bool>) {
    let packed = bits(present);
    let mut run = Vec::new();
    varint(&mut run, (packed.len() as u64) << 1 | 1);
    run.extend(packed);
    page.extend((run.len() as u32).to_le_bytes());
    page.extend(run);
}

/// The bytes of a Parquet file of named columns of equal length.
pub fn parquet(columns: &[(&str, Column)]) -> Result<Vec<u8>> {
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    if columns.iter().any(|(_, column)| column.len() != rows) {
        return Err(Error::argument("the columns of a table have one length"));
    }
    let mut file = MAGIC.to_vec();
    let mut groups: Vec<Vec<u8>> = Vec::new();
    for from in (0..rows.max(1)).step_by(GROUP) {
        let to = (from + GROUP).min(rows);
        let start = file.len();
        let mut chunks = Vec::new();
        for (name, column) in columns {
            let page = column.page(from, to);
            let size = i32::try_from(page.len()).map_err(|_| {
                Error::unsupported("the texts of a column take more than 2 GiB; write fewer rows")
            })?;
            let offset = file.len();
            file.extend(page_header(size, (to - from) as i32));
            file.extend(&page);
            let length = (file.len() - offset) as i64;
            chunks.push(chunk(name, column, (to - from) as i64, offset as i64, length));
        }
        let mut group = Struct::default();
        group.list(1, STRUCT, &chunks);
        group.long(2, (file.len() - start) as i64);
        group.long(3, (to - from) as i64);
        groups.push(group.finish());
    }
    let mut schema = vec![{
        let mut root = Struct::default();
        root.text(4, "rows");
        root.int(5, columns.len() as i32);
        root.finish()
    }];
    for (name, column) in columns {
        let mut element = Struct::default();
        element.int(1, column.kind());
        element.int(3, i32::from(column.may_miss()));
        element.text(4, name);
        if matches!(column, Column::Text(_)) {
            element.int(6, 0);
        }
        schema.push(element.finish());
    }
    let mut footer = Struct::default();
    footer.int(1, 1);
    footer.list(2, STRUCT, &schema);
    footer.long(3, rows as i64);
    footer.list(4, STRUCT, &groups);
    footer.text(6, concat!("monosplit version ", env!("CARGO_PKG_VERSION")));
    let footer = footer.finish();
    file.extend(&footer);
    file.extend((footer.len() as u32).to_le_bytes());
    file.extend(MAGIC);
    Ok(file)
}

fn page_header(size: i32, values: i32) -> Vec<u8> {
    const RLE: i32 = 3;
    let mut data = Struct::default();
    data.int(1, values);
    data.int(2, 0);
    data.int(3, RLE);
    data.int(4, RLE);
    let mut header = Struct::default();
    header.int(1, 0);
    header.int(2, size);
    header.int(3, size);
    header.inner(5, &data.finish());
    header.finish()
}

fn chunk(name: &str, column: &Column, values: i64, offset: i64, length: i64) -> Vec<u8> {
    let number = |value: i32| {
        let mut bytes = Vec::new();
        varint(&mut bytes, zigzag(i64::from(value)));
        bytes
    };
    let mut path = Vec::new();
    varint(&mut path, name.len() as u64);
    path.extend(name.as_bytes());
    let mut about = Struct::default();
    about.int(1, column.kind());
    about.list(2, I32, &[number(0), number(3)]);
    about.list(3, BINARY, &[path]);
    about.int(4, 0);
    about.long(5, values);
    about.long(6, length);
    about.long(7, length);
    about.long(9, offset);
    let mut chunk = Struct::default();
    chunk.long(2, offset);
    chunk.inner(3, &about.finish());
    chunk.finish()
}

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A structure of Thrift's compact protocol under construction.
#[derive(Default)]
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    /// Fields come in the order of their numbers, each less than 16 after the one before.
    fn field(&mut self, number: u8, kind: u8) {
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
    }

    fn int(&mut self, number: u8, value: i32) {
        self.field(number, I32);
        varint(&mut self.bytes, zigzag(i64::from(value)));
    }

    fn long(&mut self, number: u8, value: i64) {
        self.field(number, I64);
        varint(&mut self.bytes, zigzag(value));
    }

    fn text(&mut self, number: u8, value: &str) {
        self.field(number, BINARY);
        varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend(value.as_bytes());
    }

    fn list(&mut self, number: u8, kind: u8, elements: &[Vec<u8>]) {
        self.field(number, LIST);
        match elements.len() {
            few @ 0..15 => self.bytes.push((few as u8) << 4 | kind),
            many => {
                self.bytes.push(0xf0 | kind);
                varint(&mut self.bytes, many as u64);
            }
        }
        elements.iter().for_each(|element| self.bytes.extend(element));
    }

    fn inner(&mut self, number: u8, value: &[u8]) {
        self.field(number, STRUCT);
        self.bytes.extend(value);
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use parquet::basic::{ConvertedType, Type};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    /// Values from the specification of Thrift's compact protocol.
    #[test]
    fn numbers_are_written_as_the_protocol_says() {
        let written = |value: i64| {
            let mut bytes = Vec::new();
            varint(&mut bytes, zigzag(value));
            bytes
        };
        assert_eq!(written(0), [0]);
        assert_eq!(written(-1), [1]);
        assert_eq!(written(1), [2]);
        assert_eq!(written(-64), [127]);
        assert_eq!(written(64), [128, 1]);
        let mut fifty = Vec::new();
        varint(&mut fifty, 50_399);
        assert_eq!(fifty, [0xdf, 0x89, 0x03]);
    }

    /// What the columns of `read_back` hold in each row.
    fn row(index: usize) -> (Option<String>, Option<f64>, i64, bool) {
        let text = match index % 5 {
            0 => None,
            1 => Some(String::new()),
            2 => Some("ä, \"猫\"\n=1".to_owned()),
            n => Some(format!("{}{index}", "x".repeat(n))),
        };
        let real = match index % 7 {
            0 => None,
            1 => Some(f64::NAN),
            2 => Some(f64::NEG_INFINITY),
            3 => Some(-0.0),
            4 => Some(f64::MIN_POSITIVE / 4.0),
            n => Some(index as f64 / n as f64),
        };
        (text, real, (index as i64).wrapping_mul(i64::MAX / 3), index.is_multiple_of(3))
    }

    fn written(rows: usize) -> Vec<u8> {
        let all = || (0..rows).map(row);
        let columns = [
            ("name", Column::Text(all().map(|row| row.0).collect())),
            ("value", Column::Real(all().map(|row| row.1).collect())),
            ("count", Column::Whole(all().map(|row| row.2).collect())),
            ("is", Column::Flag(all().map(|row| row.3).collect())),
        ];
        parquet(&columns).unwrap()
    }

    /// The reader is that of the format's authors.
    fn read_back(rows: usize) {
        let file = SerializedFileReader::new(bytes::Bytes::from(written(rows))).unwrap();
        let about = file.metadata().file_metadata();
        assert_eq!(about.num_rows(), rows as i64);
        assert!(about.created_by().unwrap().starts_with("monosplit version "));
        let columns = about.schema_descr().columns();
        let described: Vec<_> = columns
            .iter()
            .map(|c| (c.name(), c.physical_type(), c.converted_type(), c.max_def_level()))
            .collect();
        assert_eq!(
            described,
            [
                ("name", Type::BYTE_ARRAY, ConvertedType::UTF8, 1),
                ("value", Type::DOUBLE, ConvertedType::NONE, 1),
                ("count", Type::INT64, ConvertedType::NONE, 0),
                ("is", Type::BOOLEAN, ConvertedType::NONE, 0),
            ]
        );
        assert_eq!(file.num_row_groups(), rows.div_ceil(GROUP).max(1));
        let mut count = 0;
        for (index, found) in file.get_row_iter(None).unwrap().enumerate() {
            let found: Vec<Field> =
                found.unwrap().into_columns().into_iter().map(|(_, field)| field).collect();
            let (text, real, whole, flag) = row(index);
            assert_eq!(found[0], text.map_or(Field::Null, Field::Str));
            match (&found[1], real) {
                (Field::Double(found), Some(real)) => assert_eq!(found.to_bits(), real.to_bits()),
                (found, real) => assert_eq!((found, real), (&Field::Null, None)),
            }
            assert_eq!(found[2..], [Field::Long(whole), Field::Bool(flag)]);
            count += 1;
        }
        assert_eq!(count, rows);
    }

    #[test]
    fn every_column_and_type_is_read_back_by_another_reader() {
        for rows in [0, 1, 8, 9, 1000] {
            read_back(rows);
        }
    }

    #[test]
    fn groups_of_rows_are_read_back_one_after_the_other() {
        read_back(GROUP + 17);
    }

    #[test]
    fn columns_of_different_length_are_refused() {
        assert!(parquet(&[("a", Column::Flag(vec![])), ("b", Column::Whole(vec![1]))]).is_err());
    }
}

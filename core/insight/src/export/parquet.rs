//! Apache Parquet, by the library of the Arrow project: rows in groups, every column may hold nothing.

use super::columns::{Cell, Column, ColumnKind};
use crate::fleet::{Fleet, FleetCall};
use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use std::io::{self, Write};
use std::sync::Arc;

/// Rows of a group: some ten megabytes.
const GROUP_ROWS: usize = 64 * 1024;
/// Levels of a value that is there, and of one that is not.
const THERE: i16 = 1;
const MISSING: i16 = 0;

/// Writes the calls as Parquet.
///
/// # Errors
/// What writing says.
pub fn parquet(fleet: &Fleet, to: impl Write + Send) -> io::Result<()> {
    write(fleet, to).map_err(|error| match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    })
}

fn write(fleet: &Fleet, to: impl Write + Send) -> Result<(), ParquetError> {
    let columns = Column::all();
    let program = concat!("trunkline version ", env!("CARGO_PKG_VERSION"));
    let properties = WriterProperties::builder().set_created_by(program.to_owned()).build();
    let mut file = SerializedFileWriter::new(to, schema(&columns)?, Arc::new(properties))?;
    for calls in fleet.calls.chunks(GROUP_ROWS) {
        let mut group = file.next_row_group()?;
        for column in &columns {
            // The schema has a column for each.
            let Some(mut writer) = group.next_column()? else { break };
            write_column(&mut writer, fleet, column, calls)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.close().map(drop)
}

fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let field = |column: &Column| {
        let (physical, converted) = match column.kind {
            ColumnKind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
            ColumnKind::Whole => (Physical::INT64, ConvertedType::UINT_64),
            ColumnKind::Time => (Physical::INT64, ConvertedType::TIMESTAMP_MICROS),
            ColumnKind::Real => (Physical::DOUBLE, ConvertedType::NONE),
            ColumnKind::Flag => (Physical::BOOLEAN, ConvertedType::NONE),
        };
        Type::primitive_type_builder(&column.name, physical)
            .with_converted_type(converted)
            .with_repetition(Repetition::OPTIONAL)
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("calls").with_fields(fields).build().map(Arc::new)
}

fn write_column(
    writer: &mut SerializedColumnWriter<'_>,
    fleet: &Fleet,
    column: &Column,
    calls: &[FleetCall],
) -> Result<(), ParquetError> {
    let cells = calls.iter().map(|call| column.cell(fleet, call));
    match column.kind {
        ColumnKind::Text => put(writer.typed::<ByteArrayType>(), cells, |cell| match cell {
            Cell::Text(text) => Some(ByteArray::from(text.into_bytes())),
            _ => None,
        }),
        // Numbers without a sign are kept in the bits of those with one.
        ColumnKind::Whole | ColumnKind::Time => put(writer.typed::<Int64Type>(), cells, |cell| match cell {
            Cell::Whole(number) => Some(number.cast_signed()),
            _ => None,
        }),
        ColumnKind::Real => put(writer.typed::<DoubleType>(), cells, |cell| match cell {
            Cell::Real(number) => Some(number),
            _ => None,
        }),
        ColumnKind::Flag => put(writer.typed::<BoolType>(), cells, |cell| match cell {
            Cell::Flag(flag) => Some(flag),
            _ => None,
        }),
    }
}

fn put<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    cells: impl Iterator<Item = Cell>,
    value: impl Fn(Cell) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for value in cells.map(value) {
        levels.push(if value.is_some() { THERE } else { MISSING });
        values.extend(value);
    }
    writer.write_batch(&values, Some(&levels), None).map(drop)
}

#[cfg(test)]
mod tests {
    //! Shows what is read of a file, by the same library; pyarrow reads one in `tools/cli/tests/integration/trees.rs`.
    use super::*;
    use crate::trees::tests::tree;
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    fn written(fleet: &Fleet) -> SerializedFileReader<Bytes> {
        let mut file = Vec::new();
        parquet(fleet, &mut file).unwrap();
        SerializedFileReader::new(Bytes::from(file)).unwrap()
    }

    #[test]
    fn every_call_is_a_row_with_what_was_told_of_it() {
        let fleet = tree();
        let (file, columns) = (written(&fleet), Column::all());
        let rows: Vec<_> = file.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), fleet.calls.len());
        for (row, call) in rows.iter().zip(&fleet.calls) {
            for ((name, field), column) in row.get_column_iter().zip(&columns) {
                assert_eq!(*name, column.name);
                let expected = match (column.cell(&fleet, call), column.kind) {
                    (Cell::Nothing, _) => Field::Null,
                    (Cell::Text(text), _) => Field::Str(text),
                    (Cell::Whole(us), ColumnKind::Time) => Field::TimestampMicros(us.cast_signed()),
                    (Cell::Whole(number), _) => Field::ULong(number),
                    (Cell::Real(number), _) => Field::Double(number),
                    (Cell::Flag(flag), _) => Field::Bool(flag),
                };
                assert_eq!(*field, expected, "{name}");
            }
        }
        // Six calls; the parent of each is there, and four have an attempt.
        let missing = |name: &str| {
            let at = columns.iter().position(|column| column.name == name).unwrap();
            rows.iter().filter(|row| row.get_column_iter().nth(at).unwrap().1 == &Field::Null).count()
        };
        assert_eq!((rows.len(), missing("parent"), missing("attempt")), (6, 0, 2));
    }

    #[test]
    fn groups_are_bounded() {
        let mut fleet = tree();
        let calls = fleet.calls.clone();
        fleet.calls = calls.iter().cycle().take(GROUP_ROWS + 1).cloned().collect();
        let file = written(&fleet);
        let rows: Vec<_> = file.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
        assert_eq!(rows, [GROUP_ROWS as i64, 1]);
    }

    #[test]
    fn a_file_that_takes_nothing_says_so() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = parquet(&tree(), Full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    }
}

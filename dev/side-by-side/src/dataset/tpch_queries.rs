//! The queries of TPC-H, with the values for which the specification has answers.

use tpchgen::q_and_a::queries;

/// The values of the specification for checking answers, in place of `:1`, `:2` and so on.
fn parameters(query: i32, scale: f64) -> Vec<String> {
    let fraction = format!("{:.10}", 0.0001 / scale);
    let values: &[&str] = match query {
        1 => &["90"],
        2 => &["15", "BRASS", "EUROPE"],
        3 => &["BUILDING", "1995-03-15"],
        4 => &["1993-07-01"],
        5 => &["ASIA", "1994-01-01"],
        6 => &["1994-01-01", "0.06", "24"],
        7 => &["FRANCE", "GERMANY"],
        8 => &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
        9 => &["green"],
        10 => &["1993-10-01"],
        11 => &["GERMANY", &fraction],
        12 => &["MAIL", "SHIP", "1994-01-01"],
        13 => &["special", "requests"],
        14 => &["1995-09-01"],
        15 => &["1996-01-01"],
        16 => &[
            "Brand#45",
            "MEDIUM POLISHED",
            "49",
            "14",
            "23",
            "45",
            "19",
            "3",
            "36",
            "9",
        ],
        17 => &["Brand#23", "MED BOX"],
        18 => &["300"],
        19 => &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
        20 => &["forest", "1994-01-01", "CANADA"],
        21 => &["SAUDI ARABIA"],
        _ => &["13", "31", "23", "29", "30", "18", "17"],
    };
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// The statements of query 1 to 22 of TPC-H for a scale factor, one of which returns rows.
///
/// # Panics
///
/// If there is no such query.
pub fn tpch_statements(query: i32, scale: f64) -> Vec<String> {
    let mut text = queries::query(query).expect("a query of TPC-H").to_owned();
    for (number, value) in parameters(query, scale).iter().enumerate().rev() {
        text = text.replace(&format!(":{}", number + 1), value);
    }
    // The precision of an interval, and the number of a stream of queries.
    let text = text.replace(" day (3)", " day").replace(":s", "0");
    let statements = text
        .split(';')
        .map(str::trim)
        .filter(|text| !text.is_empty());
    statements.map(str::to_owned).collect()
}

// Reads {modules, config, questions: [{sql, parameters}]} and writes the rows of each question, or its error.
const read = () => new Promise((done) => {
  let text = "";
  process.stdin.on("data", (chunk) => (text += chunk)).on("end", () => done(JSON.parse(text)));
});

const show = (value) => (value instanceof Date ? value.toISOString() : value);

(async () => {
  const { modules, config, questions } = await read();
  const { Client } = require(`${modules}/pg`);
  const client = new Client(config);
  await client.connect();
  const answers = [];
  for (const { sql, parameters, name } of questions) {
    try {
      const { rows, fields } = await client.query({ text: sql, values: parameters, rowMode: "array", name });
      answers.push({ rows: rows.map((row) => row.map(show)), fields: fields.map((f) => [f.name, f.dataTypeID]) });
    } catch (error) {
      answers.push({ code: error.code, message: error.message, hint: error.hint });
    }
  }
  await client.end();
  process.stdout.write(JSON.stringify(answers));
})();
